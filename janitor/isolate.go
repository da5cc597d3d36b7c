package janitor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

const (
	// isolateAfter is how long the tickets of other queues wait for the confirms of one queue before the janitor
	// isolates it.
	isolateAfter = time.Second
	// rejoinAfter is how long an isolated queue without anything to publish stays isolated.
	rejoinAfter = 10 * time.Second
	// A probe of an isolated queue publishes a few tickets, and a few probes may wait for their confirms at the same
	// time.
	probeTasks    = 10
	probeReceipts = 1
	probes        = 2
	// probeConfirms is how long a probe waits for confirms. It is less than the broker's own limit by default, because
	// the broker closes a connection after a few waits in vain.
	probeConfirms = 3 * time.Second
)

// isolation keeps the lanes whose queues confirm nothing. The duties that all lanes share leave out due tasks and
// receipts of these lanes, so that they neither delay nor hide those of other lanes. For each isolated lane, a duty of
// its own tries it again.
type isolation struct {
	found   chan string   // lanes whose probes are still to begin
	probing chan struct{} // has a value for each probe in progress
	mu      sync.Mutex
	lanes   map[string]bool
}

func newIsolation() isolation {
	return isolation{found: make(chan string, 1000), probing: make(chan struct{}, probes), lanes: make(map[string]bool)}
}

// shared chooses the lanes that are not isolated.
func (i *isolation) shared() store.Lanes {
	i.mu.Lock()
	defer i.mu.Unlock()
	return store.Lanes{Except: slices.Sorted(maps.Keys(i.lanes))}
}

// add isolates the lane, and reports false if it was isolated before or too many are.
func (i *isolation) add(lane string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lanes[lane] {
		return false
	}
	select {
	case i.found <- lane:
		i.lanes[lane] = true
		return true
	default: // with so many isolated lanes, one more makes no difference
		return false
	}
}

func (i *isolation) remove(lane string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.lanes, lane)
}

// byLane are tickets by the lane, and then by the queue, that they go to.
type byLane map[string]map[string][]message.Ticket

func (b byLane) add(lane, queue string, tickets ...message.Ticket) {
	if b[lane] == nil {
		b[lane] = make(map[string][]message.Ticket)
	}
	b[lane][queue] = append(b[lane][queue], tickets...)
}

// publishShared publishes the tickets of several lanes side by side, and isolates lanes that confirm nothing. It returns the tickets
// that are confirmed, and the error of one of the lanes if not all are.
func (j *Janitor) publishShared(ctx context.Context, tickets byLane) (map[message.Ticket]bool, error) {
	var mu sync.Mutex
	var firstErr error
	all := make(map[message.Ticket]bool)
	var lanes sync.WaitGroup
	for _, lane := range slices.Sorted(maps.Keys(tickets)) {
		lanes.Go(func() {
			limited, cancel := context.WithTimeout(ctx, isolateAfter)
			defer cancel()
			confirmed, err := j.publishTickets(limited, tickets[lane])
			if err != nil && len(confirmed) == 0 && ctx.Err() == nil {
				j.isolate(lane, err)
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, confirmed)
			if firstErr == nil {
				firstErr = err
			}
		})
	}
	lanes.Wait()
	return all, firstErr
}

// isolate isolates a lane that confirms nothing, or whose queue is missing and cannot be declared. It does not if the
// broker as a whole is the reason, or if a rebuild that may declare the queue is not finished.
func (j *Janitor) isolate(lane string, err error) {
	health := j.o.Broker.Health()
	if !health.Connected || health.Blocked != "" || errors.Is(err, errRebuilding) || !j.isolated.add(lane) {
		return
	}
	j.o.Log.WithError(err).WithField("lane", lane).Warn("queue confirms nothing: its tickets are published apart")
}

// probeIsolated probes each isolated lane until it joins the others again.
func (j *Janitor) probeIsolated(ctx context.Context) {
	var lanes sync.WaitGroup
	defer lanes.Wait()
	for {
		select {
		case lane := <-j.isolated.found:
			lanes.Go(func() {
				j.probe(ctx, lane)
				j.isolated.remove(lane)
			})
		case <-ctx.Done():
			return
		}
	}
}

// probe publishes a few tickets of an isolated lane, again and again with growing pauses, until the queue confirms one,
// or until no ticket has waited for a while.
func (j *Janitor) probe(ctx context.Context, lane string) {
	pause, failed := backoff.New(firstPause, longPause), time.Now()
	for pause.Wait(ctx) == nil {
		select {
		case j.isolated.probing <- struct{}{}:
		case <-ctx.Done():
			return
		}
		given, confirmed, err := j.publishSome(ctx, lane)
		<-j.isolated.probing
		switch {
		case confirmed > 0 || err == nil && given == 0 && time.Since(failed) > rejoinAfter:
			j.o.Log.WithField("lane", lane).Info("queue is published together with the others again")
			return
		case err != nil || given > 0:
			failed = time.Now()
			j.o.Log.WithError(err).WithField("lane", lane).Debug("queue still confirms nothing")
		}
	}
}

// publishSome publishes a few due tasks and a receipt of a lane. It returns how many tickets there were, and how many are confirmed.
func (j *Janitor) publishSome(ctx context.Context, lane string) (given, confirmed int, err error) {
	only := store.Lanes{Only: lane}
	var publishErr error
	publish := func(tickets byLane) map[message.Ticket]bool {
		for _, list := range tickets[lane] {
			given += len(list)
		}
		var published map[message.Ticket]bool
		limited, cancel := context.WithTimeout(ctx, probeConfirms)
		defer cancel()
		published, publishErr = j.publishTickets(limited, tickets[lane])
		confirmed += len(published)
		return published
	}
	_, err = j.dispatchReceipts(ctx, only, probeReceipts, publish)
	if err == nil && given == 0 {
		_, err = j.dispatchTasks(ctx, only, probeTasks, publish)
	}
	return given, confirmed, errors.Join(err, publishErr)
}
