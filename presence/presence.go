// Package presence fences the worker of a process that is gone before its lease is over.
//
// A process shows two signs of its presence: a session at the store and an exclusive queue at the broker. Both end with
// the process. A [Holder] holds the signs of a worker. A [Watcher], one of all janitors at a time, fences a worker whose
// signs are both gone. A server without the role [Store] or [Broker] leaves its workers to their leases.
//
// # Why two signs, and a renewal
//
// A sign that is lost proves nothing by itself: sessions also end when a server restarts or fails over, or when an
// operator ends them. So a worker is absent only if its newest renewal said that it held both signs, and a process that
// loses one says so with a renewal at once.
//
// A process may not know of the loss: a session can end at the server while the process's side of it stays open. So a
// worker is not absent while the session of its renewals exists, see [store.Renewal]. A process uses that session
// every second, so it soon notices if it has ended.
package presence

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Store is a store that sees at once when a process is gone, by a session that ends with it.
type Store interface {
	// Show holds the sign of a run in a session of its own until release is called or the session ends. Gone is
	// closed when the session has ended for any other reason than release, as soon as this process can
	// know; by then others may see the run as absent. If the sign is still held by an earlier session it waits
	// until ctx is done; then it returns an ErrUnavailable. Ctx has no influence on the sign once it
	// is held. Release returns when the session has ended, may be called more than once, and must be called.
	Show(ctx context.Context, run holdfast.RunID) (gone <-chan struct{}, release func(), err error)
	// Watch waits, until ctx is done, to be the one who watches for absences, and holds that place like a sign. One
	// process in all is enough, and another one takes the place within moments of its end. The end of the
	// session also tells the watcher that the signs of others may have ended for the same reason.
	Watch(ctx context.Context) (gone <-chan struct{}, release func(), err error)
	// Absent returns the live runs whose newest renewal said that both signs were held, whose sign nobody holds and
	// whose renewals have no session, in the order of their ids.
	Absent(ctx context.Context) ([]Absence, error)
	// Neighbors returns the live runs whose newest renewal said that both signs were held and whose processes are of
	// that boot and namespace, in the order of their ids.
	Neighbors(ctx context.Context, boot, namespace string) ([]Neighbor, error)
	// FenceAbsent declares the run dead if it is still absent and has not renewed since the absence was seen, and
	// reports whether it did. Like Fence it does nothing while the server has been up for less than settle, or
	// when it gets to the question more than two seconds after asked.
	FenceAbsent(ctx context.Context, a Absence, asked time.Time, settle time.Duration) (bool, error)
}

// Broker is a broker that sees at once when a process is gone, by something that exists only as long as the
// process's connection: in RabbitMQ an exclusive queue. By itself it proves nothing, for it also vanishes
// when the connection breaks or its node dies.
type Broker interface {
	// Show holds a sign of that name until release is called or the connection ends. Gone is closed when the sign has
	// ended for any other reason than release, as soon as this process can know. While another connection, perhaps a
	// dead one that the broker has not missed yet, holds the name, it waits until ctx is done; then it returns a
	// holdfast.ErrUnavailable. Ctx has no influence on the sign once it is held. Release may be called more
	// than once, and must be called.
	Show(ctx context.Context, name string) (gone <-chan struct{}, release func(), err error)
	// Shown reports whether anybody holds the sign of that name. Without a clear answer, until ctx is done, it returns
	// a holdfast.ErrUnavailable: in a cluster the question can hang for longer than any lease.
	Shown(ctx context.Context, name string) (bool, error)
}

// Servers are the two servers that see the presence of processes. It is used only if both are set.
type Servers struct {
	Store  Store
	Broker Broker
}

// Used reports whether both servers are set.
func (s Servers) Used() bool { return s.Store != nil && s.Broker != nil }

// Neighbor is a live run of a known process.
type Neighbor struct {
	Run       holdfast.RunID
	RenewedAt time.Time // its newest renewal, by the store's clock
	PID       int
	Started   int64 // see store.Process
}

// Absence is a live run whose sign is gone.
type Absence struct {
	Run       holdfast.RunID
	RenewedAt time.Time // its newest renewal, by the store's clock
}

const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
	// steady is how long a sign must last for its loss to be no part of a lasting fault.
	steady = 30 * time.Second
)
