package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast/broker"
)

const (
	// window bounds the confirms outstanding on a channel: the driver walks
	// through all of them for each answer.
	window = 500
	// writeGrace is how long a write may outlast the call it is for. A socket that takes
	// nothing for so long is dead or blocked, and only its close frees the caller.
	writeGrace = 100 * time.Millisecond
	// blockGrace is how long a call waits for confirms of the messages that RabbitMQ read before it stopped reading the
	// connection.
	blockGrace = 100 * time.Millisecond
)

// The flags of basic.publish. Without mandatory RabbitMQ confirms what it throws
// away; immediate does not exist in RabbitMQ.
const (
	mandatory       = true
	immediate       = false
	defaultExchange = "" // which has a binding to every queue, by its name
	waitForAnswer   = false
)

// publishers are the channels messages are published on, each used by one call at a time.
type publishers struct {
	link  *link
	limit time.Duration
	slots chan struct{} // holds one for each call under way

	mu   sync.Mutex
	idle []*publisher // the last used one is the next, so that there are no more than needed
}

// publisher is one channel in confirm mode with nothing outstanding.
type publisher struct {
	*channel
	returns <-chan amqp.Return
	id      string // first part of the message ids
	count   int
}

func newPublishers(l *link, options *Options) *publishers {
	return &publishers{link: l, limit: options.ConfirmTimeout, slots: make(chan struct{}, options.PublishChannels)}
}

// Publish implements [broker.Publisher]. Its limit is Options.ConfirmTimeout for each
// 500 messages; it stops at the first 500 that did not all get their answer.
// Right after Open it also waits, within its limit, for the first attempt to connect.
func (b *Broker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	leave, err := b.enter()
	if err != nil {
		return outcomes, err
	}
	defer leave()
	for done := 0; done < len(messages) && err == nil; done += window {
		end := min(done+window, len(messages))
		err = b.publishers.publish(ctx, messages[done:end], outcomes[done:end])
	}
	if err != nil {
		return outcomes, unavailable(err)
	}
	for i, outcome := range outcomes {
		if outcome == broker.Returned {
			return outcomes, fmt.Errorf("publish to %q: %w", messages[i].Queue, broker.ErrNoQueue)
		}
	}
	return outcomes, nil
}

// publish returns an error if an outcome remains unknown.
func (ps *publishers) publish(ctx context.Context, messages []broker.Message, outcomes []broker.Outcome) error {
	ctx, cancel := context.WithTimeoutCause(ctx, ps.limit, errLimit(ps.limit))
	defer cancel()
	s, err := ps.link.try(ctx)
	if err != nil {
		return err
	}
	if _, err := s.mayPublish(); err != nil {
		return err
	}
	select {
	case ps.slots <- struct{}{}:
		defer func() { <-ps.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p, err := ps.take(ctx, s)
	if err != nil {
		return err
	}
	if err = p.publish(ctx, messages, outcomes); err != nil {
		p.close()
		return err
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.idle = append(ps.idle, p)
	return nil
}

// errLimit is the cause of a context that ends because of our own limit, not the caller's.
type errLimit time.Duration

func (e errLimit) Error() string {
	return fmt.Sprintf("RabbitMQ did not confirm within %s", time.Duration(e))
}

// take returns a publisher on the session, an idle one if possible.
func (ps *publishers) take(ctx context.Context, s *session) (*publisher, error) {
	for p := ps.pop(); p != nil; p = ps.pop() {
		if p.session == s && p.usable() {
			return p, nil
		}
		p.close()
	}
	p, err := newPublisher(ctx, s)
	if err != nil {
		s.suspect(ctx)
	}
	return p, err
}

func (ps *publishers) pop() *publisher {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.idle) == 0 {
		return nil
	}
	last := len(ps.idle) - 1
	p := ps.idle[last]
	ps.idle = ps.idle[:last]
	return p
}

func newPublisher(ctx context.Context, s *session) (*publisher, error) {
	ch, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	// The driver fills this buffer before it completes the confirm of the same message,
	// and it has room for a whole window: nothing is dropped, and once a confirm
	// is there, so is the return.
	p := &publisher{channel: ch, returns: ch.amqp.NotifyReturn(make(chan amqp.Return, window)), id: newID() + "."}
	if err := ch.request(ctx, func(ch *amqp.Channel) error { return ch.Confirm(waitForAnswer) }); err != nil {
		ch.close()
		return nil, err
	}
	return p, nil
}

// suspect holds it against the connection if our own limit ended the context.
func (s *session) suspect(ctx context.Context) {
	if limit := errLimit(0); errors.As(context.Cause(ctx), &limit) {
		s.strike()
	}
}

// publish sends all messages, then collects what becomes of them. After an error
// something may be outstanding and the channel must not be used again.
func (p *publisher) publish(ctx context.Context, messages []broker.Message, outcomes []broker.Outcome) error {
	blocks, err := p.session.mayPublish()
	if err != nil {
		return err
	}
	first := p.count
	confirms, err := p.write(ctx, messages)
	refused := 0
	for i, confirm := range confirms {
		select {
		case <-confirm.Done():
		case <-ctx.Done(): // what has been answered by now still counts
		case <-blocks:
			blocks = nil
			_, why := p.session.mayPublish()
			limited, cancel := context.WithTimeoutCause(ctx, blockGrace, why)
			defer cancel()
			ctx = limited
			await(ctx, confirm)
		}
		if confirm.Acked() {
			outcomes[i] = broker.Stored
		} else {
			refused++
		}
	}
	p.collectReturns(first, outcomes)
	if len(confirms) > refused {
		p.session.confirmed()
	}
	switch {
	case err != nil:
		return err
	case refused == 0:
		return nil
	case ctx.Err() != nil:
		p.session.suspect(ctx)
		return context.Cause(ctx)
	case !p.usable():
		return p.reason()
	}
	return fmt.Errorf("RabbitMQ refused %d messages", refused)
}

func await(ctx context.Context, confirm *amqp.DeferredConfirmation) {
	select {
	case <-confirm.Done():
	case <-ctx.Done():
	}
}

// write sends the messages one after the other without waiting for answers.
func (p *publisher) write(ctx context.Context, messages []broker.Message) (confirms []*amqp.DeferredConfirmation, err error) {
	written, watched := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(watched)
		grace := time.NewTimer(writeGrace)
		defer grace.Stop()
		select {
		case <-written:
		case <-grace.C:
			p.session.kill(errors.New("a write hangs"))
		}
	})
	defer func() {
		close(written)
		if !unwatch() {
			<-watched
		}
	}()
	confirms = make([]*amqp.DeferredConfirmation, 0, len(messages))
	for i := range messages {
		if ctx.Err() != nil {
			return confirms, context.Cause(ctx)
		}
		confirm, err := p.amqp.PublishWithDeferredConfirm(defaultExchange, messages[i].Queue, mandatory, immediate, p.envelope(&messages[i]))
		if err != nil {
			if ctx.Err() != nil {
				return confirms, context.Cause(ctx)
			}
			return confirms, plain(err)
		}
		confirms = append(confirms, confirm)
	}
	return confirms, nil
}

func (p *publisher) envelope(m *broker.Message) amqp.Publishing {
	var headers amqp.Table
	if len(m.Headers) > 0 {
		headers = make(amqp.Table, len(m.Headers))
		for key, value := range m.Headers {
			headers[key] = value
		}
	}
	id := p.id + strconv.Itoa(p.count)
	p.count++
	return amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, ContentType: "application/json", Headers: headers, Body: m.Body}
}

// collectReturns takes back the Stored of those that RabbitMQ returned, which it
// confirms as well.
func (p *publisher) collectReturns(first int, outcomes []broker.Outcome) {
	for {
		select {
		case r, ok := <-p.returns:
			if !ok {
				return
			}
			number, err := strconv.Atoi(strings.TrimPrefix(r.MessageId, p.id))
			if i := number - first; err == nil && i >= 0 && i < len(outcomes) {
				outcomes[i] = broker.Returned
			}
		default:
			return
		}
	}
}
