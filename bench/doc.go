// Command bench compares Holdfast with other task queues. It measures all of them on the same machine, in alternating
// order, each with the settings that are known to suit it best. The command is a module of its own, so that Holdfast
// does not depend on the other task queues.
//
//	make bench
//
// Each measurement runs in a process of its own, on a schema, queues or a database that were emptied before. The
// command counts the processor time of that process and of every server. All servers must be on this machine.
//
//	make bench-scale
//
// compares Holdfast with itself: with many finished tasks and with none, with a large backlog and with a small one,
// with several workers and with one, and in each minute of a long steady state.
//
//	make bench-recovery
//
// kills workers and brokers with kill -9. It measures how soon the tasks of a dead worker start again, and counts the
// tasks that run twice because a broker died.
package main
