package main

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"time"

	"github.com/RichardKnop/machinery/v2"
	"github.com/RichardKnop/machinery/v2/backends/null"
	machineryamqp "github.com/RichardKnop/machinery/v2/brokers/amqp"
	"github.com/RichardKnop/machinery/v2/config"
	"github.com/RichardKnop/machinery/v2/locks/eager"
	"github.com/RichardKnop/machinery/v2/log"
	"github.com/RichardKnop/machinery/v2/tasks"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	machineryQueueName   = "bench.machinery"
	machineryDelayedName = "bench.machinery.delayed"
	// machineryCallers is how many goroutines store tasks, because a call of machinery stores only one task. Each
	// call waits for a confirm. A second connection makes it slower.
	machineryCallers = 256
)

var machinerySystem = system{
	name: "machinery", module: "github.com/RichardKnop/machinery/v2", servers: []string{amqpURL},
	settings: "RabbitMQ with a quorum queue, concurrency 100, prefetch 1,000, no result backend, so nothing records the end of a " +
		"task. Tasks are stored from 256 goroutines on one connection, because a call stores only one task. machinery opens a " +
		"connection for each delayed task.",
	reset: func(context.Context) error {
		conn, err := amqp.Dial(os.Getenv(amqpURL))
		if err != nil {
			return err
		}
		defer conn.Close()
		channel, err := conn.Channel()
		if err != nil {
			return err
		}
		for _, name := range []string{machineryQueueName, machineryDelayedName} {
			if _, err := channel.QueueDelete(name, false, false, false); err != nil {
				return err
			}
		}
		// Otherwise all publishers declare the queue at the same time, and the broker rejects the first messages.
		_, err = channel.QueueDeclare(machineryQueueName, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
		return err
	},
	open: func(_ context.Context, executors int) (queue, error) {
		nothing := stdlog.New(io.Discard, "", 0)
		log.SetDebug(nothing)
		log.SetInfo(nothing)
		log.SetWarning(nothing)
		return &machineryQueue{executors, newMachinery()}, nil
	},
}

func newMachinery() *machinery.Server {
	c := &config.Config{
		Broker: os.Getenv(amqpURL), DefaultQueue: machineryQueueName, NoUnixSignals: true,
		AMQP: &config.AMQPConfig{
			Exchange: machineryQueueName, ExchangeType: "direct", BindingKey: machineryQueueName, DelayedQueue: machineryDelayedName,
			PrefetchCount: 1000, QueueDeclareArgs: config.QueueDeclareArgs{amqp.QueueTypeArg: amqp.QueueTypeQuorum},
		},
	}
	return machinery.NewServer(c, machineryamqp.New(c), null.New(), eager.New())
}

type machineryQueue struct {
	executors int
	publisher *machinery.Server
}

func (q *machineryQueue) Close() error {
	return q.publisher.GetBroker().(*machineryamqp.Broker).CloseConnections()
}

func (q *machineryQueue) Fill(ctx context.Context, payloads [][]byte) error {
	return putConcurrently(ctx, machineryCallers, payloads, func(ctx context.Context, payload []byte) error { return q.Put(ctx, payload, 0) })
}

// Put may receive the confirm of a concurrent call. When all calls have returned, all tasks are confirmed.
func (q *machineryQueue) Put(ctx context.Context, payload []byte, delay time.Duration) error {
	task, err := tasks.NewSignature(taskType, []tasks.Arg{{Type: "string", Value: string(payload)}})
	if err != nil {
		return err
	}
	if delay > 0 {
		at := time.Now().Add(delay)
		task.ETA = &at
		_, err := q.publisher.SendTaskWithContext(ctx, task)
		if err == nil || time.Until(at) >= time.Millisecond {
			return err
		}
		task.ETA = nil // machinery refuses a task that is due within a millisecond
	}
	_, err = q.publisher.SendTaskWithContext(ctx, task)
	return err
}

func (q *machineryQueue) Work(ctx context.Context, handle func([]byte) error) error {
	server := newMachinery()
	if err := server.RegisterTask(taskType, func(payload string) error { return handle([]byte(payload)) }); err != nil {
		return err
	}
	worker := server.NewWorker("bench", q.executors)
	worker.SetErrorHandler(func(err error) { fmt.Fprintln(os.Stderr, "machinery:", err) })
	ended := make(chan error, 1)
	worker.LaunchAsync(ended)
	select {
	case <-ctx.Done():
		worker.Quit()
		return <-ended
	case err := <-ended:
		return err
	}
}
