package e2e

import (
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// A broker keeps its ports while it restarts. Otherwise another test could get the ports, and the workers of this test
// would connect to the broker of the other test.
func TestRestartingBrokersKeepTheirPorts(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	folder, address := privateBroker(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	amqp, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	epmd := net.JoinHostPort(at.Hostname(), strconv.Itoa(amqp+2)) // epmd runs during the restart and reserves the block of ports
	restarted := make(chan string, 1)
	go func() {
		out, err := tryScript(folder, "private-rabbitmq", nil, "restart")
		if err != nil {
			out = err.Error()
		}
		restarted <- out
	}()
	dials := time.NewTicker(5 * time.Millisecond)
	defer dials.Stop()
	for {
		select {
		case after := <-restarted:
			if after != address {
				t.Errorf("the broker was at %s, and is at %s after the restart", address, after)
			}
			return
		case <-dials.C:
			conn, err := net.DialTimeout("tcp", epmd, time.Second)
			if err != nil {
				t.Error("epmd did not run during the restart, so the ports were free: ", err)
				<-restarted
				return
			}
			conn.Close()
		}
	}
}
