-- For wrk: has small runs accepted, and prints what came of it as one line of JSON.

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"code": "print(1)"}'

function done(summary, latency, requests)
   local errors = summary.errors
   print(string.format(
      '{"seconds": %.6f, "answers": %d, "refused": %d, "socket_errors": %d, '
         .. '"milliseconds": {"p50": %.3f, "p95": %.3f, "p99": %.3f}}',
      summary.duration / 1e6, summary.requests, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3))
end
