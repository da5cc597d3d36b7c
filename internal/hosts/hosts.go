// Package hosts parses and matches patterns of hosts to which requests may be signed with a webhook secret.
//
// A pattern is one of:
//
//	api.example.com        this host, on any port
//	api.example.com:8443   this host, on this port
//	*.example.com          every name that ends in .example.com, but not example.com itself
//	*.example.com:8443     the same, on this port
//	192.0.2.7, [::1]:8080  an address, which matches no name
//
// Upper case and a final dot are ignored. A name is in ASCII, as in DNS: bücher.example is xn--bcher-kva.example.
package hosts

import (
	"errors"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Pattern matches one host, or all hosts of a domain.
type Pattern struct {
	host   string // canonical; for a domain pattern, it begins with the dot after the *
	domain bool
	port   string // empty means any
}

// name matches a DNS name. Its last label is not a number, because resolvers would take the name for an address.
var name = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
})

// Parse parses a pattern. An error describes the valid patterns and does not contain the text.
func Parse(text string) (Pattern, error) {
	host, port := text, ""
	if _, err := netip.ParseAddr(text); err != nil && strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil || strings.Trim(port, "0123456789") != "" {
			return Pattern{}, errNoPattern
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Pattern{}, errors.New("must end in a port from 1 to 65535")
		}
	}
	p := Pattern{host: canonical(host), port: port}
	suffix, domain := strings.CutPrefix(p.host, "*.")
	if domain {
		p.host, p.domain = "."+suffix, true
	}
	addr, err := netip.ParseAddr(p.host)
	if address := err == nil; address && addr.Zone() != "" || !address && (len(suffix) > 253 || !name().MatchString(suffix)) {
		return Pattern{}, errNoPattern
	}
	return p, nil
}

var errNoPattern = errors.New("is not a host like api.example.com, api.example.com:8443 or *.example.com")

// Match reports whether the pattern matches the host and port of a URL. If the URL has no port, port is the default of
// its scheme.
func (p Pattern) Match(host, port string) bool {
	host = canonical(host)
	if p.port != "" && p.port != port {
		return false
	}
	if !p.domain {
		return host == p.host
	}
	_, err := netip.ParseAddr(host)
	return err != nil && strings.HasSuffix(host, p.host) && len(host) > len(p.host)
}

// canonical returns the same text for all spellings of a host. It changes only the case of ASCII letters, because some
// other letters have an ASCII letter as their lower case.
func canonical(host string) string {
	host = strings.TrimSuffix(host, ".")
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return addr.Unmap().String()
	}
	lower := []byte(host)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower)
}
