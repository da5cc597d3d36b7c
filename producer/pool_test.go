package producer

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// A pool runs each statement in a transaction of its own. The tasks would be stored even if the caller's transaction is
// rolled back.
func TestAPoolIsNoTransaction(t *testing.T) {
	t.Parallel()
	p := mustNew(validOptions)
	for _, pool := range []store.Tx{new(sql.DB), struct{ *sql.DB }{new(sql.DB)}} { // sqlx.DB embeds one
		_, err := p.EnqueueTx(t.Context(), pool, holdfast.NewTask{Type: "t"})
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "is not a transaction; pass the *sql.Tx") {
			t.Errorf("%T: %v", pool, err)
		}
	}
}

// All methods that store tasks refuse payloads that fail the check of their type.
func TestPayloadsAreCheckedByType(t *testing.T) {
	t.Parallel()
	wrong := errors.New("no url")
	p := mustNew(Options{Store: validOptions.Store, Broker: validOptions.Broker, Topology: validOptions.Topology, Check: map[string]func([]byte) error{"http": func(payload []byte) error {
		if string(payload) == "{}" {
			return wrong
		}
		return nil
	}}})
	bad := holdfast.NewTask{Type: "http", Payload: []byte("{}")}
	if _, err := p.Enqueue(t.Context(), bad); !errors.Is(err, wrong) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err := p.EnqueueMany(t.Context(), []holdfast.NewTask{bad}); !errors.Is(err, wrong) {
		t.Errorf("EnqueueMany: %v", err)
	}
	if _, err := p.EnqueueTx(t.Context(), nil, bad); !errors.Is(err, wrong) {
		t.Errorf("EnqueueTx: %v", err)
	}
}
