// Command bench measures Holdfast beside other task queues: on the same machine, in the same run, in alternating order,
// each with the settings that are known to suit it best. It is a module of its own, so that its peers are nobody else's
// dependencies.
//
//	make bench
//
// Each measurement runs in a process of its own, on a schema, queues or a database that were made empty for it. It counts
// the processor time of that process and of every server, which have to be on this machine.
//
//	make bench-scale
//
// measures Holdfast in proportion to itself instead, in one run: with many finished tasks kept and none, with a large
// backlog and a small one, with several workers and one, and minute by minute of a long steady state.
//
//	make bench-recovery
//
// kills workers and brokers with kill -9. It measures how soon the tasks of a dead worker begin again, and counts the
// tasks that run twice because a broker died.
package main
