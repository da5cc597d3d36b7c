package inproc_test

import (
	"testing"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/workshop/brokertest"
)

func TestConformance(t *testing.T) {
	features := brokertest.Features{
		Conflicts:  true,
		Disconnect: func(b broker.Broker) { b.(*inproc.Broker).Interrupt() },
	}
	brokertest.Run(t, features, func(t *testing.T) broker.Broker { return open(t) })
}
