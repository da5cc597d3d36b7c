package e2e

import (
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/slow"
)

// A broker that restarts keeps its ports all the while: tests run side by side, and one that got them in the gap would have
// the other's workers connect to its own broker.
func TestRestartingBrokersKeepTheirPorts(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	run, address := privateBroker(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	amqp, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	epmd := net.JoinHostPort(at.Hostname(), strconv.Itoa(amqp+2)) // what holds the block of ports
	restarted := make(chan string, 1)
	go func() {
		out, err := tryScript(run, "private-rabbitmq", nil, "restart")
		if err != nil {
			out = err.Error()
		}
		restarted <- out
	}()
	dials := time.NewTicker(5 * time.Millisecond)
	defer dials.Stop()
	for {
		select {
		case again := <-restarted:
			if again != address {
				t.Errorf("it was %s, and is %s after a restart", address, again)
			}
			return
		case <-dials.C:
			conn, err := net.DialTimeout("tcp", epmd, time.Second)
			if err != nil {
				t.Error("its ports were free for anybody: ", err)
				<-restarted
				return
			}
			conn.Close()
		}
	}
}
