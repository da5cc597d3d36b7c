// Command bench compares Holdfast with other task queues. It measures all of them on the same machine, in alternating
// order, each with the fastest known settings. The command is a separate module, so that Holdfast does not depend on
// the other task queues.
//
//	make bench
//
// Each measurement runs in a new process. Before most measurements, the command deletes all tasks of the system. It
// counts the processor time of the process and of every server, so all servers must be on this machine.
//
//	make bench-scale
//
// compares Holdfast with itself: with many finished tasks and with none, with a large backlog and with a small one,
// with several workers and with one, and in each minute of a long steady state.
//
//	make bench-pressure
//
// measures Holdfast, River and graphile-worker while PostgreSQL is under pressure, such as an old snapshot.
//
//	make compare
//
// compares this version of Holdfast with an older one, in turns.
//
//	make bench-features
//
// compares tasks that use one feature, such as a key or a limit, with plain tasks.
package main
