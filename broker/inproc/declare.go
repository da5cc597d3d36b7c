package inproc

import (
	"context"
	"fmt"
	"maps"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Declare implements [broker.Admin].
func (b *Broker) Declare(ctx context.Context, objects []broker.Object) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, o := range objects {
		if err := b.declare(o); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) declare(o broker.Object) error {
	if err := o.CheckArgs(); err != nil {
		return err
	}
	o.Args = maps.Clone(o.Args)
	if args, exists := b.find(o); exists {
		if !maps.Equal(args, o.Args) {
			return fmt.Errorf("%w: %s exists with other arguments: %v, not %v", holdfast.ErrConflict, o, args, o.Args)
		}
		return nil
	}
	if o.Kind == broker.Exchange {
		b.exchanges[o.Name] = o.Args
		return nil
	}
	queue, err := newQueue(b, o)
	if err != nil {
		return err
	}
	b.queues[o.Name] = queue
	return nil
}

// find returns the arguments of an object and whether it exists.
func (b *Broker) find(o broker.Object) (args map[string]any, exists bool) {
	if o.Kind == broker.Exchange {
		args, exists = b.exchanges[o.Name]
		return args, exists
	}
	if q := b.queues[o.Name]; q != nil {
		return q.args, true
	}
	return nil, false
}

// Missing implements [broker.Admin].
func (b *Broker) Missing(ctx context.Context, objects []broker.Object) (missing []string, err error) {
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, o := range objects {
		if _, exists := b.find(o); !exists {
			missing = append(missing, o.Name)
		}
	}
	return missing, nil
}

// Delete implements [broker.Admin]. When it returns, all subscriptions of the deleted queues have ended.
func (b *Broker) Delete(ctx context.Context, objects []broker.Object) error {
	subs, err := b.remove(ctx, objects)
	waitEnded(subs)
	return err
}

func (b *Broker) remove(ctx context.Context, objects []broker.Object) (ended []*subscription, err error) {
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, o := range objects {
		if o.Kind == broker.Exchange {
			delete(b.exchanges, o.Name)
			continue
		}
		if q := b.queues[o.Name]; q != nil {
			delete(b.queues, o.Name)
			q.deleted = true
			ended = append(ended, q.stop()...)
		}
	}
	return ended, nil
}

// Depths implements [broker.Admin]. Ready counts the messages that no reader has received. Consumers counts the
// subscriptions that are not paused. The numbers are exact unless a reader receives during the call.
func (b *Broker) Depths(ctx context.Context, queues []string) (map[string]broker.Depth, error) {
	subs, err := b.subscriptions(ctx, queues)
	if err != nil {
		return nil, err
	}
	for _, s := range subs {
		_ = s.runInPump(func() {}) // records what readers have received; an ended subscription does not need this
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	depths := make(map[string]broker.Depth, len(queues))
	for _, name := range queues {
		if q := b.queues[name]; q != nil {
			depths[name] = q.depth()
		}
	}
	return depths, nil
}

func (b *Broker) subscriptions(ctx context.Context, queues []string) (subs []*subscription, err error) {
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, name := range queues {
		if q := b.queues[name]; q != nil {
			subs = append(subs, q.subs...)
		}
	}
	return subs, nil
}
