// Package faults breaks a real deployment on purpose and counts what happens to its tasks. The deployment has three
// RabbitMQ nodes, PostgreSQL with a synchronous replica, workers, janitors and producers. Each process has its own
// network namespace on one machine. `make faults` runs the package, which writes docs/fault-report.md.
//
// # Records
//
//   - A producer process records a task after Enqueue has returned. From then on the task is accepted (produce.go).
//   - The tasks are HTTP requests to the recorder, a process that no fault hits. It records each request: the number of
//     the task, the attempt, the address of the worker, the times of begin and end, and the result (record.go).
//   - The campaign records each fault, its times and the processes that it hit (campaign.go, inflict.go).
//   - At the end the campaign reads the state of each accepted task from the store.
//
// [Judge] compares these records (judge.go). An accepted task is lost if its state is not done, or if the recorder
// never answered it with success. A task may be executed again after a planned failure. It may also be executed again
// if a fault hit the database, or the worker of the previous execution. Faults of the broker, of its network and of
// janitors explain no further execution, because they must never cause one. Of the tasks with a limit, at most as many
// as it allows may run at the same time, apart from orphans: executions that a fault may have taken away from their
// worker. The campaign pauses and resumes one key (pauses.go). No execution of its tasks but an orphan may begin in a
// pause, later than a lease after its begin.
//
// A seed determines the faults, their targets and their order (plan.go). It does not determine their exact times,
// because the servers are real.
package faults
