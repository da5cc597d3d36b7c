package inproc_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/broker"
)

// body has the size of a ticket.
var body = bytes.Repeat([]byte("x"), 40)

// BenchmarkThroughput publishes, receives and acknowledges in batches of 64, with one publisher and one consumer per
// queue.
func BenchmarkThroughput(b *testing.B) {
	const batch = 64
	for _, queues := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			client := open(b)
			var work sync.WaitGroup
			each := b.N/queues + 1
			for q := range queues {
				queue := fmt.Sprint(q)
				declare(b, client, queue)
				messages := make([]broker.Message, batch)
				for i := range messages {
					messages[i] = broker.Message{Queue: queue, Body: body}
				}
				sub := subscribe(b, client, queue, 512)
				work.Go(func() {
					for left := each; left > 0; left -= batch {
						if _, err := client.Publish(b.Context(), messages[:min(batch, left)]); err != nil {
							b.Error(err)
						}
					}
				})
				work.Go(func() {
					for n := 1; n <= each; n++ {
						d := <-sub.Deliveries()
						if n%batch == 0 || n == each {
							if err := sub.Ack(d.Tag, broker.UpTo); err != nil {
								b.Error(err)
							}
						}
					}
				})
			}
			b.ReportAllocs()
			work.Wait()
			b.ReportMetric(float64(each*queues)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkRoundTrip publishes, receives and acknowledges one message at a time.
func BenchmarkRoundTrip(b *testing.B) {
	client := open(b)
	declare(b, client, "q")
	sub := subscribe(b, client, "q", 1)
	message := []broker.Message{{Queue: "q", Body: body}}
	b.ReportAllocs()
	for b.Loop() {
		_, err := client.Publish(b.Context(), message)
		must(b, err)
		must(b, sub.Ack((<-sub.Deliveries()).Tag, broker.One))
	}
}
