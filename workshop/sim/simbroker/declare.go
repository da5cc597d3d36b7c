package simbroker

import (
	"context"
	"fmt"
	"maps"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// query sends one request of an Admin and returns its answer.
func (c *Client) query(ctx context.Context, v *conn, op, name string, effect func() error) error {
	var answer error
	lost := false
	err := c.call(ctx, v, requestLimit, Step{op, func() string { return short(name) }}, func(Fate) {
		if lost = v.dead; !lost {
			answer = effect()
		}
	})
	switch {
	case err != nil:
		return unavailable(err)
	case lost:
		return c.lost(v)
	}
	return answer
}

// withConn waits a few seconds for a connection for requests of an Admin, and calls f with it.
func (c *Client) withConn(ctx context.Context, f func(*conn) error) error {
	waiting, cancel := context.WithTimeoutCause(ctx, connectLimit, errNoAnswer)
	v, err := c.await(waiting, administering)
	cancel()
	if err != nil {
		return err
	}
	return f(v)
}

// Declare implements [broker.Admin].
func (c *Client) Declare(ctx context.Context, objects []broker.Object) error {
	return c.withConn(ctx, func(v *conn) error {
		for _, o := range objects {
			o.Args = maps.Clone(o.Args)
			if err := o.CheckArgs(); err != nil {
				return err
			}
			err := c.query(ctx, v, "declare", o.Name, func() error { return c.broker.declare(o) })
			if err != nil {
				return fmt.Errorf("declare: %w", err)
			}
		}
		return nil
	})
}

// declare is the arrival of a declaration at the broker.
func (b *Broker) declare(o broker.Object) error {
	args, exists := b.find(o)
	switch {
	case !exists:
		return b.create(o)
	case !maps.Equal(args, o.Args):
		return fmt.Errorf("%w: %s exists with other arguments: %v, not %v", holdfast.ErrConflict, o, args, o.Args)
	}
	return nil
}

func (c *Client) exists(ctx context.Context, v *conn, o broker.Object) (exists bool, err error) {
	answer := false
	err = c.query(ctx, v, "inspect", o.Name, func() error {
		_, answer = c.broker.find(o)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("query %s: %w", o, err)
	}
	return answer, nil
}

// Missing implements [broker.Admin].
func (c *Client) Missing(ctx context.Context, objects []broker.Object) (missing []string, err error) {
	err = c.withConn(ctx, func(v *conn) error {
		for _, o := range objects {
			exists, err := c.exists(ctx, v, o)
			if err != nil {
				return err
			}
			if !exists {
				missing = append(missing, o.Name)
			}
		}
		return nil
	})
	return missing, err
}

// Delete implements [broker.Admin].
func (c *Client) Delete(ctx context.Context, objects []broker.Object) error {
	return c.withConn(ctx, func(v *conn) error {
		for _, o := range objects {
			err := c.query(ctx, v, "delete", o.Name, func() error {
				c.broker.destroy(c, o)
				return nil
			})
			if err != nil {
				return fmt.Errorf("delete %s: %w", o, err)
			}
		}
		return nil
	})
}

func (b *Broker) destroy(c *Client, o broker.Object) {
	if b.observer.Destroyed != nil {
		b.observer.Destroyed(c, o)
	}
	if o.Kind == broker.Exchange {
		delete(b.exchanges, o.Name)
	} else if q := b.queues[o.Name]; q != nil {
		q.remove(Deleted)
	}
}

// Depths implements [broker.Admin]. Like RabbitMQ, Ready does not count unsettled deliveries, and a cancelled consumer
// counts as long as it has unsettled deliveries.
func (c *Client) Depths(ctx context.Context, queues []string) (map[string]broker.Depth, error) {
	depths := make(map[string]broker.Depth, len(queues))
	err := c.withConn(ctx, func(v *conn) error {
		for _, name := range queues {
			var depth broker.Depth
			exists := false
			err := c.query(ctx, v, "inspect", name, func() error {
				if q := c.broker.queues[name]; q != nil {
					depth, exists = q.depth(), true
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("query queue %q: %w", name, err)
			}
			if exists {
				depths[name] = depth
			}
		}
		return nil
	})
	return depths, err
}

func (q *queue) depth() broker.Depth {
	d := broker.Depth{Ready: q.waiting()}
	for _, ch := range q.channels {
		d.Consumers += ch.lingers
		if ch.consumer.active {
			d.Consumers++
		}
	}
	return d
}
