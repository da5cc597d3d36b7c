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
	// groupSize is the maximum number of outstanding confirms of a channel. The driver scans all of them for each
	// answer.
	groupSize = 500
	// writeGrace is how long a write may continue after its call has timed out. A socket that accepts no data for that
	// long is dead or blocked, and only closing it releases the caller.
	writeGrace = 100 * time.Millisecond
	// blockGrace is how long a call waits for confirms of messages that RabbitMQ read before it blocked the connection.
	blockGrace = 100 * time.Millisecond
)

// Flags of basic.publish. Without mandatory, RabbitMQ confirms messages that it drops. RabbitMQ does not support
// immediate.
const (
	mandatory       = true
	immediate       = false
	defaultExchange = "" // routes to every queue by its name
	waitForAnswer   = false
)

// publishers is the pool of channels for publishing. One call at a time uses a channel.
type publishers struct {
	link  *link
	limit time.Duration
	slots chan struct{} // one element per call in progress

	mu   sync.Mutex
	idle []*publisher // a stack, so that the pool stays as small as possible
}

// publisher is one channel in confirm mode without outstanding confirms.
type publisher struct {
	*channel
	returns <-chan amqp.Return
	id      string // prefix of the message IDs
	count   int
}

func newPublishers(l *link, options *Options) *publishers {
	return &publishers{link: l, limit: options.ConfirmTimeout, slots: make(chan struct{}, options.PublishChannels)}
}

// Publish implements [broker.Publisher]. It publishes groups of 500 messages, each with the time limit
// Options.ConfirmTimeout. It stops after the first group with an unanswered or refused message. Right after Open it
// also waits, within this limit, for the first attempt to connect.
func (b *Broker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	endCall, err := b.beginCall()
	if err != nil {
		return outcomes, err
	}
	defer endCall()
	for done := 0; done < len(messages) && err == nil; done += groupSize {
		end := min(done+groupSize, len(messages))
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

// publish publishes one group. It returns an error if an outcome remains Unknown.
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
	p, err := ps.get(ctx, s)
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

// errLimit is the cause of a context that ConfirmTimeout has ended, not the caller.
type errLimit time.Duration

func (e errLimit) Error() string {
	return fmt.Sprintf("RabbitMQ did not confirm within %s", time.Duration(e))
}

// get returns a publisher of the session: an idle one if possible, else a new one.
func (ps *publishers) get(ctx context.Context, s *session) (*publisher, error) {
	for p := ps.popIdle(); p != nil; p = ps.popIdle() {
		if p.session == s && p.usable() {
			return p, nil
		}
		p.close()
	}
	p, err := newPublisher(ctx, s)
	if err != nil {
		s.noteTimeout(ctx)
	}
	return p, err
}

func (ps *publishers) popIdle() *publisher {
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
	// The driver writes a return to this buffer before it completes the confirm of the same message. The buffer has
	// space for a whole group, so no return is dropped, and a return is available when its confirm is complete.
	p := &publisher{channel: ch, returns: ch.amqp.NotifyReturn(make(chan amqp.Return, groupSize)), id: newID() + "."}
	if err := ch.request(ctx, func(ch *amqp.Channel) error { return ch.Confirm(waitForAnswer) }); err != nil {
		ch.close()
		return nil, err
	}
	return p, nil
}

// noteTimeout counts a missed confirm if ConfirmTimeout, not the caller, ended the context.
func (s *session) noteTimeout(ctx context.Context) {
	if limit := errLimit(0); errors.As(context.Cause(ctx), &limit) {
		s.confirmMissed()
	}
}

// publish writes all messages, then collects their outcomes. After an error, confirms may be outstanding, so the caller
// must close the channel.
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
		case <-ctx.Done(): // confirms that have arrived are still used
		case <-blocks:
			blocks = nil
			_, why := p.session.mayPublish()
			limited, cancel := context.WithTimeoutCause(ctx, blockGrace, why)
			defer cancel()
			ctx = limited
			_, _ = confirm.WaitContext(ctx)
		}
		if confirm.Acked() {
			outcomes[i] = broker.Stored
		} else {
			refused++
		}
	}
	p.collectReturns(first, outcomes)
	if len(confirms) > refused {
		p.session.confirmReceived()
	}
	switch {
	case err != nil:
		return err
	case refused == 0:
		return nil
	case ctx.Err() != nil:
		p.session.noteTimeout(ctx)
		return context.Cause(ctx)
	case !p.usable():
		return p.reason()
	}
	return fmt.Errorf("RabbitMQ refused %d messages", refused)
}

// write sends the messages one after another without waiting for confirms.
func (p *publisher) write(ctx context.Context, messages []broker.Message) (confirms []*amqp.DeferredConfirmation, err error) {
	written, watched := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(watched)
		grace := time.NewTimer(writeGrace)
		defer grace.Stop()
		select {
		case <-written:
		case <-grace.C:
			p.session.kill(errors.New("a write did not finish in time"))
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

// collectReturns sets the outcome of returned messages to Returned. RabbitMQ confirms these messages as well.
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
