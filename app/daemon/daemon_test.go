package daemon

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/app"
)

// serve serves a mux as endpoints.
func serve(t *testing.T, mux *http.ServeMux) (address net.Addr, stop func(context.Context) error) {
	t.Helper()
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	o := Options{Backend: &app.Backend{Log: silent}, Listening: func(a net.Addr) { address = a }}
	o.Backend.Config.Listen = "127.0.0.1:0"
	stop, err := serveEndpoints(t.Context(), o, mux, nil)
	if err != nil {
		t.Fatal(err)
	}
	return address, stop
}

// The endpoints stop without an error although a client is slow.
func TestEndpointsStopDespiteASlowClient(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		_, err := io.ReadAll(r.Body)
		ended <- err
	})
	address, stop := serve(t, mux)
	client, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	<-started
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stop(late); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the request has read its whole body")
	}
}

// A stop waits neither for a client that has sent half of a header nor for one that has sent half of a body.
func TestEndpointsStopDespiteHalfARequest(t *testing.T) {
	t.Parallel()
	for _, half := range []string{"", "GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx"} {
		mux := http.NewServeMux()
		started := make(chan struct{}, 2)
		mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
			started <- struct{}{}
			_, _ = io.ReadAll(r.Body)
		})
		address, stop := serve(t, mux)
		client, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := io.WriteString(client, half); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(half, "\r\n\r\n") {
			<-started
		}
		resp, err := http.Get("http://" + address.String()) // its connection is accepted after the other one
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		limit, cancel := context.WithTimeout(t.Context(), 4*time.Second) // net/http waits five seconds for a header
		if err := stop(limit); err != nil || limit.Err() != nil {
			t.Errorf("after %q the stop returns %v, its limit has passed: %v", half, err, limit.Err())
		}
		cancel()
	}
}
