package configs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

// Validate reports every value that is out of its range or does not fit another, as
// joined *Errors. Whether database.url and amqp.urls go together is for whoever opens both:
// not every command needs a broker.
func (c Config) Validate() error {
	var problems []error
	report := func(key, text string) {
		problems = append(problems, &Error{key, c.Origin(key), text})
	}
	settings := c.settings()
	inherited := make(map[string]string)
	for _, s := range settings {
		if suffix, ok := strings.CutPrefix(s.key, "defaults."); ok {
			inherited[suffix] = s.value.text()
		}
	}
	bad := make(map[string]bool) // keys, and defaults. or types.<name>. with a value out of range
	for _, s := range settings {
		err := s.value.check()
		if err == nil {
			continue
		}
		bad[s.key] = true
		if _, suffix, ok := splitTypeKey(s.key); ok {
			bad[strings.TrimSuffix(s.key, suffix)] = true
			if inherited[suffix] == s.value.text() {
				continue // said once, about defaults
			}
		}
		if strings.HasPrefix(s.key, "defaults.") {
			bad["defaults."] = true
		}
		report(s.key, s.describe(err))
	}
	if len(c.AMQP.URLs) > 1 && slices.Contains(c.AMQP.URLs, EmbeddedBroker) {
		report("amqp.urls", "must be either "+EmbeddedBroker+" alone or addresses of RabbitMQ")
	}
	if len(c.Roles) == 0 {
		report("roles", "must name at least one role")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.Secrets)) {
		if len(c.Webhook.SecretHosts[name]) == 0 && !bad[secretsPrefix+name] {
			key := hostsPrefix + name
			report(secretsPrefix+name, fmt.Sprintf("needs the hosts that it may sign requests to; add %s: [api.example.com], or %s=api.example.com",
				key, variableFor(key)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.SecretHosts)) {
		if err := checkSecretName(name); err != nil {
			report(hostsPrefix+name, err.Error())
		}
	}
	if !bad["defaults."] {
		combination(c.Defaults, "defaults.", report)
	}
	for name, t := range c.Types {
		if key := typesPrefix + name + "."; !bad[key] {
			combination(t, key, report)
		}
	}
	return errors.Join(problems...)
}

// combination reports values of one retry policy that are fine alone but not together.
func combination(t holdfast.TypeSettings, key string, report func(key, text string)) {
	p := t.Policy
	switch {
	case p.Strategy == holdfast.List && len(p.Delays) == 0:
		report(key+"retry.delays", "must hold at least one delay for the strategy list")
	case p.Base == 0 && (p.Strategy == holdfast.Exponential || p.Strategy == holdfast.Linear):
		report(key+"retry.base", "must be more than 0s for the strategy "+string(p.Strategy))
	default:
		if err := p.Validate(); err != nil {
			report(key+"retry", err.Error())
		}
	}
}

// describe is the text of an error of the setting's value, without the value if it
// is a secret.
func (s setting) describe(err error) string {
	if p, ok := errors.AsType[*problem](err); ok && s.secret {
		return "the value " + p.text
	}
	return err.Error()
}
