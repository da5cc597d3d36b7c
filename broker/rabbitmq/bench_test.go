package rabbitmq_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
)

// body has the size of a manifest with some tickets.
var body = bytes.Repeat([]byte("x"), 256)

func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 16, 256} {
		for _, parallel := range []bool{false, true} {
			b.Run(fmt.Sprintf("call=%d/parallel=%t", size, parallel), func(b *testing.B) {
				client, _ := rabbittest.Open(b)
				queue := declare(b, client)
				messages := make([]broker.Message, size)
				for i := range messages {
					messages[i] = broker.Message{Queue: queue, Body: body}
				}
				call := func() {
					if _, err := client.Publish(b.Context(), messages); err != nil {
						b.Error(err)
					}
				}
				b.ResetTimer()
				if parallel {
					b.SetParallelism(8)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							call()
						}
					})
				} else {
					for range b.N {
						call()
					}
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkReceive acknowledges each delivery, or 64 at a time.
func BenchmarkReceive(b *testing.B) {
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("ack=%d", batch), func(b *testing.B) {
			client, _ := rabbittest.Open(b)
			queue := declare(b, client)
			messages := make([]broker.Message, b.N)
			for i := range messages {
				messages[i] = broker.Message{Queue: queue, Body: body}
			}
			_, err := client.Publish(b.Context(), messages)
			must(b, err)
			b.ResetTimer()
			sub := subscribe(b, client, queue, 512)
			for n := 1; n <= b.N; n++ {
				d := receive(b, sub)
				if n%batch == 0 || n == b.N {
					must(b, sub.Ack(d.Tag, broker.UpTo))
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
