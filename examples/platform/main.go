// Command platform shows a small message platform. Each event is stored once, and becomes one signed message for each
// subscriber. A subscriber that refuses its messages does not delay the others: its messages are dead, and wait until a
// person retries them.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

func main() {
	log.SetFlags(0)
	events := flag.Int("events", 20, "number of events, 1 to 1000")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demonstrate(ctx, *events)
	stop()
	if err != nil {
		log.Fatal("platform: ", err)
	}
}

// demonstrate publishes events, and repairs a subscriber that has refused its messages.
func demonstrate(ctx context.Context, events int) error {
	if events < 1 || events > 1000 {
		return fmt.Errorf("cannot publish %d events", events)
	}
	if os.Getenv("DATABASE_URL") == "" { // a file for this demonstration only
		folder, err := os.MkdirTemp("", "platform")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		os.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(folder, "platform.db"))
	}
	cfg, err := configs.Load(configs.Options{Env: os.Environ()})
	if err != nil {
		return err
	}
	errorsOnly := logrus.New()
	errorsOnly.SetLevel(logrus.ErrorLevel)
	if _, err := app.Migrate(ctx, cfg, errorsOnly); err != nil {
		return err
	}
	backend, err := app.Open(ctx, cfg, errorsOnly)
	if err != nil {
		return err
	}
	defer backend.Close()
	q, err := queue.Over(backend, queue.NoSignals())
	if err != nil {
		return err
	}
	defer q.Close()

	subscribers := []*subscriber{newSubscriber("billing"), newSubscriber("stock"), newSubscriber("mail")}
	stock, mail := subscribers[1], subscribers[2]
	stock.faulty = true
	mail.key = newKey() // the platform has an older one
	if err := handle(q, subscribers); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(q.Run(ctx)) }()

	run := strings.ToLower(rand.Text()[:8]) // another run on the same servers has other events
	stored, err := publish(ctx, q, run, events)
	if err != nil {
		return err
	}
	fmt.Printf("%d events, each published twice: %d stored\n", events, stored)
	d := desk{backend, run}
	if err := d.await(ctx, len(subscribers)*events); err != nil {
		return err
	}
	dead, err := d.messages(ctx, holdfast.Dead)
	if err != nil {
		return err
	}
	report(subscribers)
	fmt.Printf("%d messages are dead and wait for a person; one of them:\n  %s\n", len(dead), dead[0].LastError)

	mail.repair()
	fmt.Println("mail has the right key now; a person retries its messages")
	for _, message := range dead {
		if _, err := q.Retry(ctx, message.ID); err != nil {
			return err
		}
	}
	if err := d.await(ctx, len(subscribers)*events); err != nil {
		return err
	}
	if dead, err = d.messages(ctx, holdfast.Dead); err != nil {
		return err
	}
	report(subscribers)
	fmt.Printf("%d messages are dead\n", len(dead))
	return nil
}

// event is the payload of a task of type event.
type event struct {
	ID    string `json:"id"`
	Order int    `json:"order"`
	Run   string `json:"run"`
}

// publish stores each event twice, like a caller that repeats its call after an error.
func publish(ctx context.Context, q *queue.Client, run string, events int) (stored int, err error) {
	for i := range 2 * events {
		e := event{fmt.Sprintf("%s-%d", run, i/2+1), i/2 + 1, run}
		result, err := q.Enqueue(ctx, "event", e, queue.Unique("event/"+e.ID))
		if err != nil {
			return stored, err
		}
		if !result.Duplicate {
			stored++
		}
	}
	return stored, nil
}

// handle registers the types event and http. Both have a queue of their own, so that this program takes no other tasks.
func handle(q *queue.Client, subscribers []*subscriber) error {
	options := webhook.Options{AllowCIDRs: loopback, Secrets: make(map[string]webhook.Secret)}
	for _, s := range subscribers {
		options.Secrets[s.name] = webhook.Secret{Keys: []string{s.platformKey}, Hosts: []string{s.host}}
	}
	deliver, err := webhook.New(options)
	if err != nil {
		return err
	}
	own, soon := queue.Queue("platform"), queue.Backoff(50*time.Millisecond, time.Second)
	if err := queue.Handle(q, webhook.Type, func(ctx context.Context, task holdfast.Task, _ webhook.Payload) error {
		return deliver.Handle(ctx, task)
	}, own, soon); err != nil {
		return err
	}
	// All messages of an event are stored together with the success of its task, or none of them.
	return queue.Handle(q, "event", func(ctx context.Context, task holdfast.Task, e event) error {
		for i, s := range subscribers {
			if i == 1 && e.Order%5 == 0 && task.Failures == 0 {
				return fmt.Errorf("cannot read the subscribers after %s", subscribers[0].name)
			}
			url, body := "http://"+s.host+"/events", fmt.Appendf(nil, `{"event": %q, "order": %d}`, e.ID, e.Order)
			err := queue.Next(ctx, webhook.Type, webhook.Payload{URL: url, Body: body, SecretRef: s.name},
				queue.Unique(e.ID+"/"+s.name), queue.Key(s.name), queue.Tags(e.Run))
			if err != nil {
				return err
			}
		}
		return nil
	}, own, soon)
}

// desk is what a person uses: the same store as the commands holdfast task list and holdfast dead list.
type desk struct {
	*app.Backend
	run string
}

// messages returns the messages in the given states.
func (d desk) messages(ctx context.Context, states ...holdfast.State) (found []holdfast.Task, err error) {
	f := store.Filter{Type: webhook.Type, Tags: []string{d.run}, States: states, Limit: 100}
	for {
		page, err := d.Store.List(ctx, f)
		if err != nil || len(page.Tasks) == 0 {
			return found, err
		}
		found = append(found, page.Tasks...)
		f.Before = found[len(found)-1].ID
	}
}

// await waits until so many messages are done or dead, or until the worker has ended.
func (d desk) await(ctx context.Context, messages int) error {
	for {
		found, err := d.messages(ctx, holdfast.Done, holdfast.Dead)
		if ctx.Err() != nil {
			return fmt.Errorf("the worker has ended: %w", context.Cause(ctx))
		}
		if err != nil || len(found) == messages {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
