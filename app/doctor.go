package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/internal/logs"
)

// examineConnectWait is how long Examine waits for RabbitMQ.
const examineConnectWait = 3 * time.Second

// Examine checks the system of a configuration with package doctor. It changes nothing.
func Examine(ctx context.Context, cfg configs.Config, log logrus.FieldLogger) doctor.Report {
	log = logs.Limited(log)
	chosen, err := choose(cfg, log)
	if err == nil {
		err = chosen.mismatch
	}
	if err != nil {
		return doctor.Report{Checks: []doctor.Check{
			doctor.Failure("configuration", err, holdfast.Hint{Kind: holdfast.HintShowSettings}),
		}}
	}
	b := &Backend{Config: cfg, Log: log}
	system := doctor.System{
		Database: configs.RedactURL(cfg.Database.URL), Brokers: redacted(cfg.AMQP.URLs),
		Prefix: cfg.AMQP.Prefix, HoldingQueues: broker.HoldingQueues,
		OpenStore: func(ctx context.Context) (doctor.OpenStore, error) {
			var err error
			b.Store, b.file, err = chosen.store(ctx, false)
			return b.Store, err
		},
		OpenBroker: func(ctx context.Context) (doctor.OpenBroker, error) {
			var err error
			if b.Broker, err = chosen.broker(ctx); err != nil {
				return nil, err
			}
			if err = b.Ping(ctx, examineConnectWait); err != nil {
				return nil, errors.Join(err, b.Broker.Close())
			}
			return b.Broker, nil
		},
	}
	if slices.Equal(cfg.AMQP.URLs, []string{configs.EmbeddedBroker}) {
		system.Served = func() error { return b.file.served() }
	}
	return doctor.Examine(ctx, system)
}

func redacted(urls []string) []string {
	hidden := make([]string, len(urls))
	for i, address := range urls {
		hidden[i] = configs.RedactURL(address)
	}
	return hidden
}

// CheckBroker checks the server of the broker, and compares its AMQP queues and its marker with the topology. It
// changes nothing. It returns an ErrInvalid if the broker is not a doctor.BrokerChecker.
func (b *Backend) CheckBroker(ctx context.Context) ([]doctor.Check, error) {
	checker, ok := b.Broker.(doctor.BrokerChecker)
	if !ok {
		return nil, fmt.Errorf("%w: this broker cannot check itself", holdfast.ErrInvalid)
	}
	queues, err := b.Store.QueueNames(ctx)
	if err != nil {
		return nil, err
	}
	checks, err := checker.Server(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := doctor.CompareTopology(ctx, checker, b.Topology, queues)
	return append(checks, objects...), err
}
