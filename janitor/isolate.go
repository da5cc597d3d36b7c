package janitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// isolateAfter is how long the tickets of other queues wait for a queue without confirms. Then the janitor isolates
	// that queue.
	isolateAfter = time.Second
	// rejoinAfter is how long an isolated queue without tickets to publish remains isolated.
	rejoinAfter  = 10 * time.Second
	probeEntries = 1  // maximum number of outbox entries that one probe of an isolated queue publishes
	probeTasks   = 10 // maximum number of due tasks that a probe publishes if there is no outbox entry
	maxProbes    = 2  // maximum number of probes that wait for confirms at the same time
	// probeTimeout is how long a probe waits for confirms. It is shorter than the broker's default limit, because the
	// broker closes a connection after several publishes without confirms.
	probeTimeout = 3 * time.Second
)

// publishLimits are isolateAfter, probeTimeout and rebuildTimeout. Tests on slow machines use longer ones.
type publishLimits struct{ isolate, probe, rebuild time.Duration }

// isolation is the set of isolated queues, whose AMQP queues confirm nothing. The shared duties omit their due tasks
// and outbox entries, so that these neither delay nor hide those of other queues. Each isolated queue has a goroutine
// that probes it. The methods of isolation are safe for concurrent use.
type isolation struct {
	added   chan string   // isolated queues whose probing has not started yet
	probing chan struct{} // has a value for each probe in progress
	mu      sync.Mutex
	queues  map[string]bool
}

func newIsolation() isolation {
	return isolation{added: make(chan string, 1000), probing: make(chan struct{}, maxProbes), queues: make(map[string]bool)}
}

// shared selects the queues that are not isolated.
func (i *isolation) shared() store.Queues {
	i.mu.Lock()
	defer i.mu.Unlock()
	return store.Queues{Except: slices.Sorted(maps.Keys(i.queues))}
}

// add isolates a queue. It returns false if the queue is isolated already, or if too many queues are isolated.
func (i *isolation) add(queue string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.queues[queue] {
		return false
	}
	select {
	case i.added <- queue:
		i.queues[queue] = true
		return true
	default: // the channel is full
		return false
	}
}

// remove ends the isolation of a queue.
func (i *isolation) remove(queue string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.queues, queue)
}

// byQueue has tickets by queue, and for each queue by AMQP queue.
type byQueue map[string]map[string][]message.Ticket

func (b byQueue) add(queue, amqpQueue string, tickets ...message.Ticket) {
	if b[queue] == nil {
		b[queue] = make(map[string][]message.Ticket)
	}
	b[queue][amqpQueue] = append(b[queue][amqpQueue], tickets...)
}

// publishShared publishes the tickets of several queues concurrently, and isolates queues that confirm nothing. It
// returns the confirmed tickets. If some are not confirmed, it also returns the error of one of the queues.
func (j *Janitor) publishShared(ctx context.Context, tickets byQueue) (map[message.Ticket]bool, error) {
	var mu sync.Mutex
	var firstErr error
	all := make(map[message.Ticket]bool)
	var queues sync.WaitGroup
	for _, queue := range slices.Sorted(maps.Keys(tickets)) {
		queues.Go(func() {
			limited, cancel := context.WithTimeout(ctx, j.limits.isolate)
			defer cancel()
			confirmed, err := j.publishTickets(limited, tickets[queue])
			if err != nil && len(confirmed) == 0 && ctx.Err() == nil {
				j.isolate(queue, err)
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, confirmed)
			if firstErr == nil {
				firstErr = err
			}
		})
	}
	queues.Wait()
	return all, firstErr
}

// isolate isolates a queue whose AMQP queues confirm nothing, or are missing and cannot be declared. It does nothing if
// the broker accepts no messages at all, or if a rebuild in progress may still declare the AMQP queues.
func (j *Janitor) isolate(queue string, err error) {
	health := j.o.Broker.Health()
	if !health.Connected || health.Blocked != "" || errors.Is(err, errRebuilding) || !j.isolated.add(queue) {
		return
	}
	j.o.Log.WithError(err).WithField("queue", queue).Warn("queue confirms nothing, publishing its tickets separately")
}

// probeIsolated probes every isolated queue until ctx is done. It returns when all probes have ended.
func (j *Janitor) probeIsolated(ctx context.Context) {
	var queues sync.WaitGroup
	defer queues.Wait()
	for {
		select {
		case queue := <-j.isolated.added:
			queues.Go(func() {
				j.probe(ctx, queue)
				j.isolated.remove(queue)
			})
		case <-ctx.Done():
			return
		}
	}
}

// probe publishes a few tickets of an isolated queue at growing intervals. It returns when the queue has confirmed a
// ticket, when the queue has had no tickets for rejoinAfter, or when ctx is done.
func (j *Janitor) probe(ctx context.Context, queue string) {
	pause, failed := backoff.New(firstPause, longPause), time.Now()
	for pause.Wait(ctx) == nil {
		select {
		case j.isolated.probing <- struct{}{}:
		case <-ctx.Done():
			return
		}
		given, confirmed, err := j.probeOnce(ctx, queue)
		<-j.isolated.probing
		switch {
		case confirmed > 0 || err == nil && given == 0 && time.Since(failed) > rejoinAfter:
			j.o.Log.WithField("queue", queue).Info("queue is published together with the others again")
			return
		case err != nil || given > 0:
			failed = time.Now()
			j.o.Log.WithError(err).WithField("queue", queue).Debug("queue still confirms nothing")
		}
	}
}

// probeOnce publishes the tickets of one outbox entry of a queue. If there is no entry, it publishes those of a few due
// tasks. It returns the number of tickets, and how many of them the broker confirmed.
func (j *Janitor) probeOnce(ctx context.Context, queue string) (given, confirmed int, err error) {
	only := store.Queues{Only: queue}
	var publishErr error
	publish := func(tickets byQueue) map[message.Ticket]bool {
		for _, list := range tickets[queue] {
			given += len(list)
		}
		var published map[message.Ticket]bool
		limited, cancel := context.WithTimeout(ctx, j.limits.probe)
		defer cancel()
		published, publishErr = j.publishTickets(limited, tickets[queue])
		confirmed += len(published)
		return published
	}
	err = contain.Call(func() error {
		_, err := j.dispatchOutbox(ctx, only, probeEntries, publish)
		if err == nil && given == 0 {
			_, err = j.dispatchTasks(ctx, only, probeTasks, publish)
		}
		return err
	})
	return given, confirmed, errors.Join(err, publishErr)
}
