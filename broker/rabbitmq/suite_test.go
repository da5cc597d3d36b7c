package rabbitmq_test

import (
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/workshop/brokertest"
	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
)

// proxied opens a broker behind a proxy. The cleanup deletes the queues without the proxy.
func proxied(t *testing.T, options rabbitmq.Options) (*rabbitmq.Broker, *netfault.Proxy) {
	t.Helper()
	address := rabbittest.URL(t)
	proxy, err := netfault.New(rabbittest.HostPort(t, address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	options.URLs = []string{rabbittest.At(t, address, proxy.Addr())}
	return rabbittest.OpenWith(t, address, options), proxy
}

// suite returns the features for the conformance suite and a function that opens brokers for it.
func suite() (features brokertest.Features, open func(*testing.T) *rabbitmq.Broker) {
	var proxies sync.Map // by broker
	features = brokertest.Features{
		Conflicts: true,
		Disconnect: func(b broker.Broker) {
			proxy, _ := proxies.Load(b)
			proxy.(*netfault.Proxy).CutAbrupt()
		},
	}
	return features, func(t *testing.T) *rabbitmq.Broker {
		b, proxy := proxied(t, rabbitmq.Options{})
		proxies.Store(broker.Broker(b), proxy)
		return b
	}
}

func TestConformance(t *testing.T) {
	rabbittest.URL(t)
	features, open := suite()
	brokertest.Run(t, features, func(t *testing.T) broker.Broker { return open(t) })
}

func TestPresence(t *testing.T) {
	t.Parallel()
	rabbittest.URL(t)
	features, open := suite()
	brokertest.WorkerPresence(t, features, func(t *testing.T) (here, elsewhere brokertest.Present) { return open(t), open(t) })
}
