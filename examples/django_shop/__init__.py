"""A Django project that consumes: `python -m examples.django_shop.manage bill`."""
