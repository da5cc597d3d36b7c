// Package simstore is a store.Store in memory, for a deterministic simulator: the real producer, consumer and
// janitor run against it in virtual time, and the simulator decides when each of their steps takes place.
//
// A [Store] is the database, which all share. A [Client] is what one process has of it: it implements store.Store,
// and each atomic action of it goes through the client's [Gate]. There is one such action, an effect, wherever
// the adapters for real servers have a statement or a transaction of their own, so a process can be made to crash
// between any two of them. Where the adapters differ it takes the smaller actions and the weaker promises, which are
// those of store/postgres; but a row that is being published may be changed by others meanwhile, as in store/sqlite.
//
// # What it promises
//
// It behaves as the contract says and as the other adapters do: it passes store/storetest, and takes part in the random
// walks that compare the adapters. The same calls in the same order have the same answers: there is no
// randomness in it, it starts no goroutine and never waits, and whatever could come in any order comes in that of the ids.
// The only clock is the one given to New, which is the database's; times are whole microseconds, as in
// the databases.
//
// # What it does not do
//
// An effect takes no time: there are no waits for locks, and a transaction's clock is never older than its commit. InsertTx
// needs SQL and is refused. Nothing is kept when the process ends.
package simstore
