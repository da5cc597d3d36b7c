package pgclient

import (
	"errors"
	"testing"

	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
)

// If a row exceeds a limit of the server, such as that of an index, it is invalid. Callers must not try again with
// other rows.
func TestLimitsOfTheServerAreInvalidInput(t *testing.T) {
	t.Parallel()
	for _, code := range []pqerror.Code{"54000", "54001", "22001"} {
		if kind := kindOfCode(code); !errors.Is(kind, holdfast.ErrInvalid) {
			t.Errorf("the kind of %s is %v", code, kind)
		}
	}
}
