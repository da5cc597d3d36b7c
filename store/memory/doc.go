// Package memory is a store.Store in memory. Programs test their handlers on it, with package queuetest. In the simulator
// the real producer, consumer and janitor run against it in virtual time, and the simulator decides when each of their
// steps takes effect.
//
// A [Store] is the database, which all processes share. A [Client] is the connection of one process to it. A Client
// implements store.Store, and sends each of its atomic actions through its [Gate]. Such an action is called an effect.
// There is one effect for each statement or transaction of the adapters for real servers, so that the simulator can
// kill a process between any two of them. Where the adapters differ, this package takes the smaller effects and the
// weaker promises, which are those of store/postgres. One exception comes from store/sqlite: other clients may change a
// row while it is being published.
//
// # Promises
//
// The package passes workshop/storetest and takes part in the random walks that compare the adapters. The same calls in
// the same order return the same results. The package uses no random numbers, starts no goroutine, and never waits.
// Results without a specified order are in the order of their ids. The only clock is the function given to New, which
// is the database's clock. Times are in whole microseconds, as in the databases.
//
// # Limits
//
// An effect takes no time: it never waits for a lock, and its time is the time of its commit. InsertTx needs SQL and
// returns an error. Nothing is kept when the process ends.
package memory
