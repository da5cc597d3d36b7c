package broker

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Examiner is a broker that can be asked how it is kept. It is for a doctor: nothing may depend on a
// broker having this role, or be decided by what it says.
type Examiner interface {
	// Server checks product, version and abilities, and says what cannot be seen from here. Without a connection it
	// waits a few seconds for one, and then returns a holdfast.ErrUnavailable.
	Server(ctx context.Context) ([]holdfast.Finding, error)
	// Compare checks each object against what is there, and changes nothing: one finding an object, named after it, in
	// their order. Errors are those of Server.
	Compare(ctx context.Context, objects []Object) ([]holdfast.Finding, error)
}
