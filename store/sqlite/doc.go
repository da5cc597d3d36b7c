// Package sqlite is the store in one file on this machine, through a driver that needs no C. It is for
// one binary, one file and no server.
//
// Each operation is one .go file and the .sql files of the same name in sql/.
//
// # What it promises
//
// What a call has stored survives the end of the process and of the machine: every transaction is on the
// disk when its call returns. Calls that write queue in the order they came, and share the file with other
// processes by asking for its lock every millisecond; a call gives up waiting when its context ends, and
// after [busyLimit] at the latest. A transaction that has begun is not broken off: it is short, or it is
// one step of many. Questions never wait for those who write.
//
// The clock is the machine's. When it was set, or the machine slept, leases that are over prove nothing for
// a while; see Fence.
//
// Only one process at a time should run tasks from a file; [Store.Own] says which. Others may look at it
// and add to it at any time.
//
// # What it keeps in memory
//
// The tasks and receipts that are being published. A process that ends in the middle of it has published
// them or not, and the next one publishes them again.
package sqlite
