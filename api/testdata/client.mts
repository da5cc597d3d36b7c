// The program of TestAGeneratedClientWorks. Its arguments are the URL of the API and the id of a dead task.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [, , baseUrl, dead] = process.argv;
const client = createClient<paths>({ baseUrl });

// known returns the data of an answer, and ends the program if the answer is a problem.
function known<T>(what: string, answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) {
    throw new Error(`${what}: ${JSON.stringify(answer.error)}`);
  }
  return answer.data;
}

known("enqueue", await client.POST("/api/v1/tasks", { body: { type: "mail", queue: "mail", payload: { to: "ada" } } }));
known("enqueue two", await client.POST("/api/v1/tasks", {
  body: [{ type: "mail", queue: "mail", delay: "1h" }, { type: "mail", queue: "mail", tags: ["a:b"] }],
}));
const first = known("list", await client.GET("/api/v1/tasks", { params: { query: { q: "queue:mail", limit: 2 } } }));
const tags: string[] = first.tasks[0].tags;
if (first.next === null || tags[0] !== "a:b") {
  throw new Error(`the first page: ${JSON.stringify(first)}`);
}
const second = known("page", await client.GET("/api/v1/tasks", {
  params: { query: { q: "queue:mail", limit: 2, before: first.next } },
}));
if (second.tasks.length !== 1 || second.tasks[0].tags.length !== 0 || second.next !== null) {
  throw new Error(`the second page: ${JSON.stringify(second)}`);
}
known("retry", await client.POST("/api/v1/tasks/{id}/retry", {
  params: { path: { id: dead } }, body: { reason: "the target is back" },
}));
known("pause", await client.POST("/api/v1/gates", { body: { kind: "pause", queue: "mail", for: "1h" } }));
known("limit", await client.PUT("/api/v1/limits", { body: { type: "mail", rate: "100/s" } }));
known("plan", await client.POST("/api/v1/operations", { body: { action: "retry", query: "state:dead", dry_run: true } }));
known("edit", await client.PATCH("/api/v1/tasks/{id}", {
  params: { path: { id: dead } }, body: [{ op: "replace", path: "/queue", value: "other" }],
}));
const refused = await client.POST("/api/v1/policy/simulation", { body: { type: "" } });
if (refused.error?.code !== "invalid") {
  throw new Error(`an invalid type: ${JSON.stringify(refused)}`);
}
const missing = await client.GET("/api/v1/tasks/{id}", { params: { path: { id: "999999" } } });
if (missing.error?.code !== "not_found" || missing.error.status !== 404 || !missing.error.detail) {
  throw new Error(`a missing task: ${JSON.stringify(missing)}`);
}
// @ts-expect-error The document has no such member.
await client.POST("/api/v1/tokens", { body: { name: "x", role: "viewer", nosuch: 1 } });
// @ts-expect-error The document does not have the role.
await client.POST("/api/v1/tokens", { body: { name: "x", role: "root" } });
