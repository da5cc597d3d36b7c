package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"

	"github.com/holdfastq/holdfast"
)

// guard decides to which addresses requests may go.
type guard struct {
	*ssrf.Guardian
}

// azureMetadata is a public address. Inside Azure it is the metadata service of the host.
var azureMetadata = netip.MustParsePrefix("168.63.129.16/32")

func newGuard(allow []netip.Prefix) (*guard, error) {
	var v4, v6 []netip.Prefix
	for _, block := range allow {
		addr, bits := block.Addr(), block.Bits()
		if addr.Is4In6() && bits >= 96 {
			addr, bits = addr.Unmap(), bits-96
		}
		block, err := addr.Prefix(bits)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: webhook: %s is not a network", holdfast.ErrInvalid, block)
		case addr.Is4():
			v4 = append(v4, block)
		default:
			v6 = append(v6, block)
		}
	}
	return &guard{ssrf.New(
		ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...),
		ssrf.WithDeniedV4Prefixes(azureMetadata),
	)}, nil
}

// dialer returns a dialer that checks every address with the guard, after name resolution and before it connects.
func (g *guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTime, Control: g.Safe}
}

// checkHost returns an error if the host is a forbidden address. It accepts every name, because the dialer checks the
// addresses that a name resolves to.
func (g *guard) checkHost(host string) error {
	host = strings.TrimSuffix(host, ".")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		// Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as 127.0.0.1. No legitimate target needs these forms.
		if last := host[strings.LastIndexByte(host, '.')+1:]; numeric(last) {
			return fmt.Errorf("%w: the host %.100q is neither a name nor an address in standard form", holdfast.ErrInvalid, host)
		}
		return nil
	}
	if err := g.SafeAddr(addr.Unmap()); err != nil || addr.Zone() != "" {
		return fmt.Errorf("%w: the address %s is %w", holdfast.ErrInvalid, addr, errForbidden)
	}
	return nil
}

var errForbidden = holdfast.WithHint(errors.New("not on the public internet and not in an allowed network"),
	holdfast.Hint{Kind: holdfast.HintAllowAddress})

// numeric reports whether the last part of a host makes the host an address, by the rule of browsers.
func numeric(part string) bool {
	hex, isHex := strings.CutPrefix(strings.ToLower(part), "0x")
	digits := part != "" && strings.Trim(part, "0123456789") == ""
	return digits || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

// forbidden reports whether the error is a dial that the guard refused.
func forbidden(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
