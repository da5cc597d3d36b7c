package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/holdfastq/holdfast"
)

// MayServe returns an error if the API must not listen at the address: without tokens, only programs of this machine
// may use it.
func (a *API) MayServe(address net.Addr) error {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return holdfast.WithHint(fmt.Errorf("%w: the HTTP API would serve other machines at %s without authentication", holdfast.ErrInvalid, address),
		holdfast.Hint{Kind: holdfast.HintCreateToken})
}

// notLocal returns a problem for a request that may come from elsewhere although the API listens on a loopback address:
// from a page in a browser whose name resolves to this address, or through a proxy.
func (a *API) notLocal(r *http.Request) *Problem {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(header) != "" {
			return needsToken("the request came through a proxy, and the API has no tokens")
		}
	}
	if origin := r.Header.Get("Sec-Fetch-Site"); origin == "cross-site" || origin == "same-site" {
		return needsToken("the request comes from a page of another site, and the API has no tokens")
	}
	if host := hostOf(r.Host); !localHost(host) {
		return needsToken("the request is for the host " + host + ", and without tokens the API only serves localhost")
	}
	return nil
}

func needsToken(detail string) *Problem {
	p := newProblem(http.StatusForbidden, "forbidden", "%s", detail)
	p.Hint = "create a token with: holdfast token create NAME --role viewer"
	return p
}

// hostOf returns the host of an address that may have a port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// localHost reports whether a host is this machine by definition.
func localHost(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
