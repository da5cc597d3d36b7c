// Package holdfast is the domain of a reliable retry worker: it defines tasks, their states, and the rules that decide
// the outcome of each attempt.
//
// A task is a row in a SQL store. The store is the source of truth about tasks. A ticket in RabbitMQ is only a hint
// that a task may run. Consumers claim the tasks that their tickets name and list each page of tickets in a manifest in
// a holding queue. Then they run the handlers and write the results. A janitor reads the manifests and hands back the
// tasks of workers that have died.
//
// The package imports only the standard library and does no input or output. Everything in it is a value or a pure
// function, and is safe for concurrent use unless its comment says otherwise.
//
// # The life of a task
//
//  1. A producer inserts the row in state [Ready] together with an outbox entry, commits, publishes the ticket, and
//     deletes the outbox entry.
//  2. A consumer claims the task. The task is [Running] and belongs to one [WorkerID] for one attempt.
//  3. [Settle] decides the outcome of the attempt. The store applies the resulting [Transition] only if the state, the
//     attempt and the owner of the row have not changed.
//  4. The task is [Done]; or [Ready] again, at a later time and with a new attempt number; or [Dead], until an operator
//     retries it; or [Cancelled].
//
// # Attempts and failures
//
// Task.Attempt numbers the executions. It grows by one each time the task becomes ready again, for any reason. So (task
// id, attempt) is a fencing token: the store accepts at most one result for it.
//
// Task.Failures counts the attempts in which the task itself failed. Only failures use up MaxAttempts. Crashes and
// deferrals have their own counters and limits. Hand-backs during a shutdown are not counted.
package holdfast
