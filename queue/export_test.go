package queue

import "github.com/holdfastq/holdfast/app"

// Backend returns the backend of a client.
func Backend(c *Client) *app.Backend { return c.backend }
