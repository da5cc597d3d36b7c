package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Presence is a store that sees at once when a process is gone, by a session that ends with it. It is one of two
// signs that must agree before anybody is fenced sooner than the lease; the other is a
// [github.com/holdfastq/holdfast/broker.Presence]. A store without this role leaves everybody to the lease.
//
// A sign that is lost proves nothing by itself: sessions also end when a server restarts or fails over, or when an operator
// ends them. So a run is absent only if its newest renewal said that both signs were held, and a process that loses
// one says so with a renewal at once.
//
// A process may not know of the loss: a session can end at the server while the process's side of it stays open. So a
// run is not absent while the session of its renewals exists, see [Renewal.OwnSession]. A process uses that session
// every second, so it soon notices if it has ended.
type Presence interface {
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
	// Absent returns the live runs that were [Renewal.Shown] at their newest renewal, whose sign nobody holds and whose
	// renewals have no session, in the order of their ids.
	Absent(ctx context.Context) ([]Absence, error)
	// Neighbors returns the live runs that were [Renewal.Shown] at their newest renewal and whose processes are of that boot and
	// namespace, in the order of their ids.
	Neighbors(ctx context.Context, boot, namespace string) ([]Neighbor, error)
	// FenceAbsent declares the run dead if it is still absent and has not renewed since the absence was seen, and
	// reports whether it did. Like Fence it does nothing while the server has been up for less than settle, or
	// when it gets to the question more than two seconds after asked.
	FenceAbsent(ctx context.Context, a Absence, asked time.Time, settle time.Duration) (bool, error)
}

// Neighbor is a live run of a known process.
type Neighbor struct {
	Run       holdfast.RunID
	RenewedAt time.Time // its newest renewal, by the store's clock
	PID       int
	Started   int64 // see [Process]
}

// Absence is a live run whose sign is gone.
type Absence struct {
	Run       holdfast.RunID
	RenewedAt time.Time // its newest renewal, by the store's clock
}
