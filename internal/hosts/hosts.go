// Package hosts reads and matches the hosts that a webhook secret may sign requests to.
//
// A pattern is one of:
//
//	api.example.com        this host, on any port
//	api.example.com:8443   this host, on this port
//	*.example.com          every name that ends in .example.com, but not example.com itself
//	*.example.com:8443     the same, on this port
//	192.0.2.7, [::1]:8080  an address, which matches no name
//
// Case and a dot at the end do not count. A name is in ASCII, as DNS has it: bücher.example is xn--bcher-kva.example.
package hosts

import (
	"errors"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Pattern is one host, or all hosts of a domain.
type Pattern struct {
	host   string // canonical; without the * of a domain, so that it begins with a dot
	domain bool
	port   string // empty means any
}

// name is a name in DNS. Its last part is no number, or resolvers would read the name as an address.
var name = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// Parse reads a pattern. Its error says what is allowed, without the text.
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
	if address := err == nil; address && addr.Zone() != "" || !address && (len(suffix) > 253 || !name.MatchString(suffix)) {
		return Pattern{}, errNoPattern
	}
	return p, nil
}

var errNoPattern = errors.New("is not a host like api.example.com, api.example.com:8443 or *.example.com")

// Match reports whether the host and port of a URL are meant. The port of a URL that names none is the usual one of its scheme.
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

// canonical is one form for all spellings of a host. Only ASCII changes its case: there are other letters that become ASCII
// ones with it.
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
