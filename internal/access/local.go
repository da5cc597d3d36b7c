package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// notLocal returns an *Error if a request to a loopback address may come from elsewhere: through a proxy, or from a
// page in a browser whose host name resolves to this address.
func notLocal(r *http.Request) error {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		return needsToken("the request comes from another machine, and the API has no tokens")
	}
	for header := range r.Header {
		if ofProxy(header) {
			return needsToken("the request came through a proxy, because it has the header " + header + ", and the API has no tokens")
		}
	}
	if FromOtherSite(r) {
		return needsToken("the request comes from a page of another site, and the API has no tokens")
	}
	if host := hostOf(r.Host); !localHost(host) {
		return needsToken("the request is for the host " + host + ", and without tokens the API only serves localhost")
	}
	return nil
}

// ofProxy reports whether proxies add a header to the requests that they forward. No list of these headers is complete,
// so ofProxy compares parts of their names. A program that calls an API on its own machine sends no such header.
func ofProxy(header string) bool {
	name := strings.ToLower(header)
	return slices.ContainsFunc([]string{
		"forwarded", "client-ip", "clientip", "real-ip", "connecting-ip", "remote-ip", "remote-addr", "user-ip",
		"proxy", "original-host", "original-url",
	}, func(part string) bool { return strings.Contains(name, part) }) || slices.ContainsFunc([]string{
		"cf-", "cdn-", "fly-", "fastly-", "x-envoy-", "x-amzn-", "x-amz-cf-", "x-azure-", "x-appengine-", "x-vercel-",
		"x-nf-", "x-arr-", "tailscale-", "ngrok-",
	}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) || slices.Contains([]string{"via", "x-via", "x-cloud-trace-context"}, name)
}

func needsToken(detail string) *Error {
	return forbidden(detail, createToken)
}

// hostOf returns the host of an address that may have a port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// localHost reports whether a host always means this machine.
func localHost(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
