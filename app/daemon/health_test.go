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
	"github.com/holdfastq/holdfast/store"
)

// unusable is a store that answers, but cannot be used.
type unusable struct {
	store.Store
	why error
}

func (u unusable) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (u unusable) Ready(context.Context) error { return u.why }

// A store that answers is not enough: behind a pooler that mixes up statements a process must not be ready.
func TestAStoreThatCannotBeUsedIsNotReady(t *testing.T) {
	t.Parallel()
	broker := inproc.Open(inproc.Options{})
	t.Cleanup(func() { _ = broker.Close() })
	if got := unready(t.Context(), &app.Backend{Store: unusable{}, Broker: broker}, nil, nil); len(got) > 0 {
		t.Errorf("it is not ready: %v", got)
	}
	mixed := errors.New("a pooler mixes up statements")
	if got := unready(t.Context(), &app.Backend{Store: unusable{why: mixed}, Broker: broker}, nil, nil); !slices.Equal(got, []string{mixed.Error()}) {
		t.Errorf("the reasons are %v", got)
	}
}

// A queue that does not exist is a janitor's to declare, and any other reason speaks for itself.
func TestWhyAQueueIsNotConsumed(t *testing.T) {
	t.Parallel()
	if got := waits(fmt.Errorf("subscribe: %w", brokers.ErrNoQueue), nil); got != "it does not exist yet; a janitor declares it, or: holdfast topology apply" {
		t.Error(got)
	}
	if got := waits(errors.New("starting"), nil); got != "starting" {
		t.Error(got)
	}
}
