package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/app"
	brokers "github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/store/desk"
)

// unusable is a store that answers but is not ready.
type unusable struct {
	desk.Store
	why error
}

func (u unusable) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (u unusable) Ready(context.Context) error { return u.why }

// A process is not ready if its store answers but cannot be used, for example behind a pooler that confuses prepared
// statements.
func TestAStoreThatCannotBeUsedIsNotReady(t *testing.T) {
	t.Parallel()
	broker := inproc.Open(inproc.Options{})
	t.Cleanup(func() { _ = broker.Close() })
	if got := notReady(t.Context(), &app.Backend{Store: unusable{}, Broker: broker}, nil, nil); len(got) > 0 {
		t.Errorf("not ready: %v", got)
	}
	mixed := errors.New("a pooler mixes up statements")
	if got := notReady(t.Context(), &app.Backend{Store: unusable{why: mixed}, Broker: broker}, nil, nil); !slices.Equal(got, []string{mixed.Error()}) {
		t.Errorf("reasons are %v, want %v", got, mixed)
	}
}

// If a queue does not exist, the reason names the janitor and the command that declare it. Other reasons are unchanged.
func TestWhyAQueueIsNotConsumed(t *testing.T) {
	t.Parallel()
	if got := notConsumed(fmt.Errorf("subscribe: %w", brokers.ErrNoQueue), nil); got != "it does not exist yet; a janitor declares it, or: holdfast topology apply" {
		t.Error(got)
	}
	if got := notConsumed(errors.New("starting"), nil); got != "starting" {
		t.Error(got)
	}
}
