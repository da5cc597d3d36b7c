package transact

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// Operation reads an operation. It returns an ErrNotFound if there is none with the id.
func Operation(ctx context.Context, r Reader, id store.ID) (store.Operation, error) {
	missing := fmt.Errorf("%w: there is no operation %s", holdfast.ErrNotFound, id)
	row, err := FirstOf[scan.Operation](ctx, r, missing, "operation", 1, int64(id))
	if err != nil {
		return store.Operation{}, err
	}
	return row.Value(), nil
}
