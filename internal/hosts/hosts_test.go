package hosts

import "testing"

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, host, port string
		want                bool
	}{
		{"api.example.com", "api.example.com", "443", true},
		{"api.example.com", "api.example.com", "8443", true},
		{"API.Example.com.", "api.EXAMPLE.com", "443", true},
		{"api.example.com", "api.example.com.", "443", true},
		{"api.example.com", "evil-api.example.com", "443", false},
		{"api.example.com", "a.api.example.com", "443", false},
		{"api.example.com", "api.example.com.evil.com", "443", false},
		{"api.example.com", "example.com", "443", false},
		{"api.example.com", "", "443", false},
		{"k.example.com", "\u212a.example.com", "443", false}, // the Kelvin sign, whose lower case is k
		{"api.example.com:8443", "api.example.com", "8443", true},
		{"api.example.com:8443", "api.example.com", "443", false},
		{"*.example.com", "api.example.com", "443", true},
		{"*.example.com", "a.b.Example.com.", "1", true},
		{"*.example.com", "example.com", "443", false},
		{"*.example.com", ".example.com", "443", false},
		{"*.example.com", "evilexample.com", "443", false},
		{"*.example.com", "example.com.evil.com", "443", false},
		{"*.example.com:8443", "api.example.com", "8443", true},
		{"*.example.com:8443", "api.example.com", "443", false},
		{"192.0.2.7", "192.0.2.7", "80", true},
		{"192.0.2.7", "192.0.2.70", "80", false},
		{"192.0.2.7", "::ffff:192.0.2.7", "80", true},
		{"::1", "0:0:0:0:0:0:0:1", "80", true},
		{"[::1]:8080", "::1", "8080", true},
		{"[::1]:8080", "::1", "80", false},
		{"localhost", "localhost", "80", true},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", "443", true},
	} {
		p, err := Parse(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
		} else if got := p.Match(c.host, c.port); got != c.want {
			t.Errorf("%s with %s and %s: %t", c.pattern, c.host, c.port, got)
		}
	}
}

func TestInvalidPatterns(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ".", "*", "*.", "*.*", "**.example.com", "*example.com", "api.*.com", "a..b", ".example.com", "https://example.com", "example.com/path",
		"user@example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:https", "exa mple.com", "bücher.example", "*.0.0.1",
		"300.1.2.3", "0177.0.0.1", "-a.example", "a-.example", "fe80::1%eth0:1", "a:b:c", "example.com,other.com", "*.::1",
	} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q is parsed as %+v", text, p)
		}
	}
}
