package rabbitmq_test

import (
	"testing"
	"context"
	"time"
	"fmt"

	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
)

func TestZZ(t *testing.T) {
	server := rabbittest.Private(t)
	b := rabbittest.OpenWith(t, server.URL, rabbitmq.Options{})
	queue := declare(t, b)
	for i := range 300 { publish(t, b, queue, fmt.Sprint(i)) }
	for _, limit := range []time.Duration{9*time.Second, time.Second, 300*time.Millisecond, 9*time.Second, time.Second, 300*time.Millisecond} {
		sub := subscribe(t, b, queue, 10)
		server.Kill()
		ended(t, sub)
		go server.Up()
		for b.Ping(ctx(t)) != nil {}
		began := time.Now()
		for {
			c, cancel := context.WithTimeout(t.Context(), limit)
			at := time.Now()
			sub, err := b.Subscribe(c, queue, 10)
			cancel()
			if err == nil { 
				at2 := time.Now()
			receive(t, sub)
			fmt.Println(limit, "ok after", time.Since(began), "this try", at2.Sub(at), "receive", time.Since(at2)); sub.Close(); break }
			fmt.Println(limit, time.Since(began), err)
		}
		insist(t, b, queue, "x")
			fmt.Println(limit, "publish ok after", time.Since(began))
		server.Up()
	}
}
