package observe

// Stale says that a container changed although its state did not. The next observation asks the
// runtime for its details again.
func (o *Observer) Stale(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.containers, id)
}
