// Package presence detects that the process of a worker has ended before the worker's lease expires.
//
// A process acquires two presence locks for its worker: a lock in a session of the store, and an exclusive queue in the
// broker. The servers release both when the process ends. A [Keeper] keeps the presence locks of a worker. A [Watcher]
// fences a worker that has neither lock. Of all janitors, one at a time runs a watcher. If the store does not implement
// [Store] or the broker does not implement [Broker], only the leases decide.
//
// # Why two locks and a renewal
//
// The loss of one lock proves nothing. A session also ends when a server restarts or fails over, or when an operator
// terminates it. So a worker is missing only if its latest renewal reported both locks. A process that loses a lock
// reports that at once, with a renewal.
//
// A process may not notice the loss, because a session can end at the server while the connection remains open at the
// process. So a worker is not missing while the session of its renewals exists; see [store.Renewal]. A process uses
// that session every second and therefore notices its end.
package presence

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Store is a store that notices the end of a process at once, because a session ends together with its process.
type Store interface {
	// Acquire takes the presence lock of a worker in a new session. The process has the lock until it calls release or
	// the session ends. If another session has the lock, Acquire waits until ctx is done and then returns an
	// ErrUnavailable. After Acquire has returned, ctx has no effect on the lock.
	//
	// gone is closed as soon as this process can know that the session has ended for any reason other than release.
	// Other processes may already see the worker as missing at that time. release returns when the session has ended.
	// The caller must call it, and may call it several times.
	Acquire(ctx context.Context, worker holdfast.WorkerID) (gone <-chan struct{}, release func(), err error)
	// Watch waits until ctx is done to become the watcher. It acquires a lock of its own, as Acquire does, so that one
	// process at a time is the watcher. When that process ends, another one replaces it at once. If the session ends,
	// other workers may have lost their locks for the same reason.
	Watch(ctx context.Context) (gone <-chan struct{}, release func(), err error)
	// Missing returns the missing workers in the order of their ids. A missing worker is live, and its latest renewal
	// reported both locks. But no session has its lock, and the session of its renewals has ended.
	Missing(ctx context.Context) ([]MissingWorker, error)
	// Neighbors returns the live workers of the given boot and namespace whose latest renewal reported both locks, in
	// the order of their ids.
	Neighbors(ctx context.Context, boot, namespace string) ([]Neighbor, error)
	// FenceMissing fences the worker if it is still missing and has not renewed its lease since m was returned. It
	// reports whether it fenced the worker. Like Fence, it does nothing if the server has been up for less than settle,
	// or if it processes the call more than two seconds after calledAt.
	FenceMissing(ctx context.Context, m MissingWorker, calledAt time.Time, settle time.Duration) (bool, error)
}

// Broker is a broker with presence locks. It notices the end of a process at once, because a lock exists only as long
// as the connection of the process. In RabbitMQ the lock is an exclusive queue. A missing queue alone proves nothing:
// RabbitMQ also deletes the queue when the connection breaks or its node fails.
type Broker interface {
	// Acquire takes the presence lock with the given name. The process has the lock until it calls release or the
	// connection ends. If another connection has the lock, Acquire waits until ctx is done and then returns an
	// ErrUnavailable. The other connection may be dead without the knowledge of the broker. After Acquire has returned,
	// ctx has no effect on the lock.
	//
	// gone is closed as soon as this process can know that it lost the lock for any reason other than release. The
	// caller must call release, and may call it several times.
	Acquire(ctx context.Context, name string) (gone <-chan struct{}, release func(), err error)
	// Present reports whether any connection has the lock with the given name. If the broker gives no clear answer
	// before ctx is done, Present returns an ErrUnavailable. In a cluster a query can take longer than a lease.
	Present(ctx context.Context, name string) (bool, error)
}

// Servers are the two servers with presence locks. Presence needs both.
type Servers struct {
	Store  Store
	Broker Broker
}

// Used reports whether both servers are set.
func (s Servers) Used() bool { return s.Store != nil && s.Broker != nil }

// Neighbor is a live worker whose process is known.
type Neighbor struct {
	Worker    holdfast.WorkerID
	RenewedAt time.Time // time of its latest renewal, by the store's clock
	PID       int
	Started   int64 // see store.Process
}

// MissingWorker is a live worker without a presence lock at the store.
type MissingWorker struct {
	Worker    holdfast.WorkerID
	RenewedAt time.Time // time of its latest renewal, by the store's clock
}

// The pauses of a janitor between tries to acquire its own locks.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// stableAfter is how long a process must have had a lock before the pauses restart at the shortest one.
const stableAfter = 30 * time.Second
