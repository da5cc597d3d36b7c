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

// guard decides which addresses may be called.
type guard struct {
	*ssrf.Guardian
}

// azureWire is a public address that, inside Azure, is the host's metadata service.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

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
		ssrf.WithDeniedV4Prefixes(azureWire),
	)}, nil
}

// dialer returns a dialer that asks the guard about every address, after names were
// resolved and before anything is sent.
func (g *guard) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTime, Control: g.Safe}
}

// checkHost refuses a host that is written as a forbidden address. Names pass: what
// they resolve to is checked when it is dialled.
func (g *guard) checkHost(host string) error {
	host = strings.TrimSuffix(host, ".")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		// Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as 127.0.0.1. Nobody needs to.
		if last := host[strings.LastIndexByte(host, '.')+1:]; numeric(last) {
			return fmt.Errorf("%w: the host %.100q is neither a name nor an address in the usual form", holdfast.ErrInvalid, host)
		}
		return nil
	}
	if err := g.SafeAddr(addr.Unmap()); err != nil || addr.Zone() != "" {
		return fmt.Errorf("%w: the address %s is %w", holdfast.ErrInvalid, addr, errForbidden)
	}
	return nil
}

// errForbidden is the reason of a refused address.
var errForbidden = holdfast.WithHint(errors.New("not on the public internet, and in none of the networks that are allowed"),
	holdfast.Hint{Kind: holdfast.HintAllowAddress})

// numeric reports whether the last part of a host makes the host an address, by the
// rule browsers follow.
func numeric(part string) bool {
	hex, isHex := strings.CutPrefix(strings.ToLower(part), "0x")
	digits := part != "" && strings.Trim(part, "0123456789") == ""
	return digits || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

// forbidden reports whether the guard stopped a dial.
func forbidden(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
