package webhook

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

func TestSpecialAddressesAreForbidden(t *testing.T) {
	t.Parallel()
	g, err := newGuard(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.168.1.1", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "127.0.0.1.",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254",
		"ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "2001::1",
		"2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "0", "1.2.3.4.5", "256.0.0.1", "0x", "example.0x7f",
	} {
		if err := g.checkHost(host); err == nil {
			t.Errorf("%s is accepted", host)
		}
		addr, err := netip.ParseAddr(strings.TrimSuffix(host, "."))
		if err != nil {
			continue
		}
		network := "tcp4"
		if addr.Is6() {
			network = "tcp6"
		}
		if err := g.Safe(network, net.JoinHostPort(addr.String(), "80"), nil); err == nil {
			t.Errorf("%s can be dialed", host)
		}
	}
	for _, host := range []string{"1.1.1.1", "2606:4700::1111", "example.com", "0x7f.example", "1.example.com", "a", "deadbeef", "::ffff:1.1.1.1"} {
		if err := g.checkHost(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestPermittedNetworks(t *testing.T) {
	t.Parallel()
	g, err := newGuard([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"10.1.2.3": true, "10.2.0.1": false, "fd12::1": true, "fc00::1": false, "::ffff:10.1.0.1": true, "192.168.7.9": true, "192.168.8.1": false,
		"127.0.0.1": false, "fd00::1%eth0": false,
	} {
		if err := g.checkHost(host); (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestTheDialIsGuarded requests a local server by all names and spellings of this host.
func TestTheDialIsGuarded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was called") }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h := testHandler(t, Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "１２７.0.0.1"} {
		err := h.Handle(t.Context(), task(`{"url":"http://`+host+":"+port+`/"}`))
		report := holdfast.ReportOf(err)
		if event, _ := verdict(t, err); report.Class != "forbidden_address" || event != holdfast.EventGiveUp {
			t.Errorf("%s: got class %s, %s: %v", host, report.Class, event, err)
		}
	}
	// The guard does not rely on checkHost.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !forbidden(err) {
		t.Errorf("got %v, %v", resp, err)
	}
}

func task(payload string) holdfast.Task {
	return holdfast.Task{
		ID: 42, Type: Type, State: holdfast.Running, Attempt: 3, Payload: []byte(payload), ImportedKey: "task_42_key",
	}
}
