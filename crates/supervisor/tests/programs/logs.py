import logging

logging.warning("before a handler")
record = logging.LogRecord("x", 10, "path", 1, "text", (), None)
print(0 <= record.relativeCreated < 60_000)
logging.basicConfig(format="%(name)s %(levelname)s %(message)s %(processName)s %(threadName)s", force=True, level=0)
logging.getLogger("mine").debug("details")
print(logging.root.handlers, logging.getLevelName(logging.root.level), "mine" in logging.root.manager.loggerDict)
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("failed")
