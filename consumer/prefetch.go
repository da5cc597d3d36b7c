package consumer

import "time"

// prefetchEstimate estimates the prefetch of a subscription: the number of messages whose tasks take about
// prefetchSpan. An idle worker cannot run the tasks of messages that wait in this process, so the prefetch is small.
// The estimate uses recent pages only, because task durations and the number of tickets in a message change.
type prefetchEstimate struct {
	minTickets  int
	maxMessages int
	messages    int // the estimate

	since                         time.Time
	sampleTickets, sampleMessages int // since the last estimate
}

// prefetchSpan is the amount of work that is prefetched, and also the time between two estimates.
const prefetchSpan = 250 * time.Millisecond

func newPrefetchEstimate(concurrency, most int) prefetchEstimate {
	return prefetchEstimate{minTickets: 2 * concurrency, maxMessages: most, messages: most, since: time.Now()}
}

// add records a page, by its numbers of tickets and messages.
func (a *prefetchEstimate) add(tickets, messages int) {
	a.sampleTickets += tickets
	a.sampleMessages += messages
	took := time.Since(a.since)
	if took < prefetchSpan {
		return
	}
	// The factor 2 lets the estimate grow.
	worth := max(a.minTickets, int(2*float64(a.sampleTickets)*prefetchSpan.Seconds()/took.Seconds()))
	want := min(max(1, worth*a.sampleMessages/max(1, a.sampleTickets)), a.maxMessages)
	if want > 2*a.messages || want < a.messages/2 { // a change returns all waiting messages to their AMQP queue
		a.messages = want
	}
	a.since, a.sampleTickets, a.sampleMessages = time.Now(), 0, 0
}
