// Runs graphile-worker for graphile.go:
//
//   node worker.mjs migrate SETTINGS
//   node worker.mjs work SETTINGS
//
// SETTINGS is a preset as JSON. The second form writes "ready" to stdout. A line "begin" on stdin starts the worker. A
// line "end" stops the worker; the process writes "ended" when all results are stored. The process ends at the end of
// stdin. While the worker runs, each line on stdout reports handlers that started one after another with the same
// payload: their number, a space, and the payload as JSON.
import { createInterface } from "node:readline";
import { Logger, run, runMigrations } from "graphile-worker";

const [command, settings] = process.argv.slice(2);
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(`graphile-worker: ${message}`);
});
const preset = { worker: { ...JSON.parse(settings), logger } };

// Reports that are not written yet. Handlers of one turn of the event loop share a write, because a system call for each
// handler would take longer than a task.
let lines = "";
let payload;
let count = 0;

function endLine() {
  if (count > 0) lines += `${count} ${JSON.stringify(payload)}\n`;
  count = 0;
}

function flush() {
  endLine();
  process.stdout.write(lines);
  lines = "";
}

function started(next) {
  if (count === 0 && lines === "") setImmediate(flush);
  if (next !== payload) endLine();
  payload = next;
  count++;
}

if (command === "migrate") {
  await runMigrations({ preset });
} else {
  let runner;
  process.stdout.write("ready\n");
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === "begin") {
      runner = await run({ preset, noHandleSignals: true, taskList: { bench: started }, parsedCronItems: [] });
    } else if (line === "end") {
      await runner.stop();
      flush();
      process.stdout.write("ended\n");
    }
  }
}
