"""The results as Markdown."""

from ..matrix import PACED

# Below this a table cell shows a decimal.
WHOLE_FROM = 100


def markdown(document: dict, data_name: str) -> str:
    parts = [
        "# fumehood measured",
        introduction(document, data_name),
        "![p50 and p99 of every contender](latest.svg)" if document["cells"] else "",
        targets(document),
        *[program_table(document, program) for program in document["programs"]],
        contenders(document),
        figures(document),
        served(document),
        failures(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def introduction(document: dict, data_name: str) -> str:
    facts, settings = document["facts"], document["settings"]
    host, engine, daemon = facts["host"], facts["engine"], facts["daemon"]
    image = facts["versions"]["image"]
    lines = [
        f"Written by `benches/run.sh`; all samples are in [{data_name}]({data_name}).",
        "",
        f"- {document['date'][:10]}, fumehood {daemon['version']} at `{daemon['commit'][:12]}`, {daemon['build']}",
        f"- {host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB; {host['system']}, "
        f"kernel {host['kernel']}; load {host['load_before']} before, {document['load_after']} after",
        f"- Docker Engine {engine['version']}, {engine['runtime']}, {engine['storage']}, "
        f"cgroup v{engine['cgroup_version']}",
        f"- Python {image['python']}, pandas {image['pandas']}, scikit-learn {image['scikit-learn']}; "
        f"llm-sandbox {facts['versions']['llm-sandbox']}",
        f"- at least {settings['runs']} runs of each, in {settings['rounds']} rounds in turns where "
        f"blocks allow; pool of {settings['pool_size']}; {settings['concurrent_runs']} runs of fumehood at a time",
    ]
    lines += [f"- **{warning}**" for warning in document["warnings"]]
    return "\n".join(lines)


def targets(document: dict) -> str:
    words = {True: "reached", False: "**not reached**", None: "n/a"}
    rows = [[target["name"], target["wanted"], target["measured"], words[target["reached"]], target["basis"]]
            for target in document["targets"]]
    return "## Targets\n\n" + grid(["", "wanted", "measured", "", "by"], rows)


def program_table(document: dict, program: dict) -> str:
    """Milliseconds of every contender; what was not measured is n/a."""
    cells = {(cell["contender"], cell["mode"], cell["clients"]): cell
             for cell in document["cells"] if cell["program"] == program["name"]}
    if not cells:
        return ""
    clients = document["settings"]["clients"]
    rows = []
    for contender in document["contenders"]:
        modes = [("closed loop", "closed", clients)]
        if contender["has_pool"]:
            modes.insert(0, ("pool keeps up", PACED, [1]))
        for title, mode, counts in modes:
            row = [contender["title"], title]
            for count in clients:
                cell = cells.get((contender["name"], mode, count)) if count in counts else None
                row += shown(cell, contender["unavailable"], count in counts)
            rows.append(row)
    heading = ["", "mode"]
    for count in clients:
        heading += [f"{count}: p50", "p95", "p99", "runs/s"]
    text = (f"## {program['title']}\n\nMilliseconds from request to result, at "
            f"{', '.join(str(count) for count in clients)} at a time.\n\n")
    return text + grid(heading, rows)


def shown(cell: dict | None, unavailable: str | None, applies: bool) -> list[str]:
    if not applies:
        return ["", "", "", ""]
    if cell is None or cell["milliseconds"] is None:
        return ["n/a" if unavailable or cell is None else "failed", "", "", ""]
    mark = f" ({cell['failures']} failed)" if cell["failures"] else ""
    times = [number(cell["milliseconds"][which]) for which in ("p50", "p95", "p99")]
    rate = cell["runs_per_second"]
    return [times[0] + mark, *times[1:], "" if rate is None else f"{rate:.1f}"]


def contenders(document: dict) -> str:
    rows = [[told["title"], told["isolation"], told["note"] if not told["unavailable"]
             else f"n/a: {told['unavailable']}"] for told in document["contenders"]]
    return "## Contenders\n\n" + grid(["", "between runs", ""], rows)


def figures(document: dict) -> str:
    lines = []
    for name, figure in document["figures"].items():
        if isinstance(figure.get("unavailable"), str):
            lines.append(f"- {name}: n/a, {figure['unavailable']}")
        elif name == "sustained":
            rates = ", ".join(f"{who} {rate:.2f}/s" for who, rate in figure["runs_per_second"].items())
            lines.append(f"- Sustained at {figure['clients']} at a time, trivial program: {rates}")
        elif name == "accepting":
            lines.append(
                f"- Accepting, {figure['clients']} clients: {figure['accepted_per_second']:.0f} runs/s, "
                f"p50 {figure['milliseconds']['p50']:.1f} ms, p99 {figure['milliseconds']['p99']:.1f} ms; "
                f"{figure['accepted']} acknowledged, {figure['in_store_after_kill']} in the store after SIGKILL")
        elif name == "memory":
            idle, loaded = figure["idle_mib"], figure["loaded_mib"]
            lines.append(
                f"- Memory of the daemon: {idle['rss']} MiB resident ({idle['pss']} proportional) idle; "
                f"{loaded['rss']} ({loaded['pss']}) with {figure['waiting']} waiting and {figure['floods']} floods")
        elif name == "hot-calls":
            full, few = (figure["finished_runs"][store] for store in ("full", "empty"))
            lines += [f"- `{call}`, p50 with {full} finished runs {stores['full']['p50']:.2f} ms, "
                      f"with {few} {stores['empty']['p50']:.2f} ms (p99 {stores['full']['p99']:.2f} and "
                      f"{stores['empty']['p99']:.2f})" for call, stores in figure["calls"].items()]
    return "## Further figures\n\n" + "\n".join(lines) if lines else ""


def served(document: dict) -> str:
    """How runs of fumehood got their sandbox, where the daemon tells."""
    rows = []
    for cell in document["cells"]:
        if cell["served"]["start"]:
            starts = ", ".join(f"{count} {start}" for start, count in cell["served"]["start"].items())
            mounts = ", ".join(f"{count} {how}" for how, count in cell["served"]["dataset_mount"].items())
            rows.append([cell["contender"], cell["program"], cell["mode"], str(cell["clients"]), starts, mounts])
    if not rows:
        return ""
    return "## How runs were served\n\n" + grid(
        ["", "program", "mode", "at a time", "sandbox", "data set"], rows)


def failures(document: dict) -> str:
    lines = [f"- {cell['contender']}, {cell['program']}, {cell['mode']}, {cell['clients']} at a time: "
             f"{count} × {error}" for cell in document["cells"] for error, count in cell["errors"].items()]
    return "## Failed runs\n\n" + "\n".join(lines) if lines else ""


def number(value: float) -> str:
    return f"{value:.0f}" if value >= WHOLE_FROM else f"{value:.1f}"


def grid(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
