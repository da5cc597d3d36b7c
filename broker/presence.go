package broker

import "context"

// Presence is a broker that sees at once when a process is gone, by something that exists only as long as the
// process's connection: in RabbitMQ an exclusive queue. It is the second of two signs, see
// [github.com/holdfastq/holdfast/store.Presence]; by itself it proves nothing, for it also vanishes
// when the connection breaks or its node dies.
type Presence interface {
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
